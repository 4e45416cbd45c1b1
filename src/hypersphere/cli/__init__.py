"""The command line: `hypersphere COMMAND`. `entry` starts and ends it, `commands` lists the commands.

May import everything; nothing imports it. Commands import what they need when they run, so that help comes at once.
"""

from hypersphere.cli.entry import main

__all__ = ["main"]
