"""hypersphere pretrain | evaluate | sweep | …: where it starts, and how it ends."""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Sequence

from hypersphere.errors import Elsewhere, UserError, refusals_told, with_dashes
from hypersphere.util.launch import is_first, place_on_machine

HEARD = 2.0  # seconds in which a launcher that has seen one process end will have ended the others


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; a user's mistake is one line on standard error and status 2 (1: runs failed)."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    with contextlib.suppress(AttributeError):  # where a terminal has no ±, it gets a question mark
        sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]
    try:
        with refusals_told():
            _run(words)
        sys.stdout.flush()
    except Elsewhere:
        return 2
    except UserError as error:
        place = 0 if error.joint else place_on_machine()[0]
        if place:  # most mistakes are those of all, and the first of a machine tells; who is still there made its own
            time.sleep(HEARD)
        print(f"hypersphere: {f'process {place}: ' * bool(place)}{with_dashes(str(error))}", file=sys.stderr)
        return getattr(error, "status", 2)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt as interrupt:
        if is_first():
            print(f"hypersphere: {with_dashes(str(interrupt)) or 'interrupted'}", file=sys.stderr)
        return 128 + getattr(interrupt, "signum", signal.SIGINT)
    return 0


def _run(words: list[str]) -> None:
    from hypersphere.cli.commands import COMMANDS  # here, so that Ctrl-C is understood while it loads

    if not words or words[0] in ("-h", "--help", "help"):
        print("hypersphere: self-supervised representation learning on the unit hypersphere\n")
        for name, (_, summary) in COMMANDS.items():
            print(f"  hypersphere {name:10} {summary}")
        print("\nhypersphere COMMAND --help explains each.")
    elif words[0] == "--version":
        from hypersphere import __version__

        print(f"hypersphere {__version__}")
    elif words[0] not in COMMANDS:
        raise UserError(f"unknown command {words[0]!r} (there are {', '.join(COMMANDS)})")
    else:
        COMMANDS[words[0]][0](words[1:])


if __name__ == "__main__":
    sys.exit(main())
