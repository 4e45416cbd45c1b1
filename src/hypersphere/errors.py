"""A user's mistake, or the world's: told in one line, without a traceback at the command line."""


class UserError(ValueError):
    pass
