"""One attempt at a run, in the process that makes it."""

import os
import pickle
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path

from hypersphere.errors import UserError, as_command_line
from hypersphere.sweeps.work import USER_ERROR
from hypersphere.util import console
from hypersphere.util.console import notify
from hypersphere.util.cores import keep_to
from hypersphere.util.files import lock_folder
from hypersphere.util.standard_streams import tolerate_output_errors

PATIENCE = 30.0  # seconds to wait for a folder that processes of a killed run still lock: they end by themselves
LOG_EVERY = 2.0  # seconds between progress lines in a run's log


def child() -> None:
    """Main function of a worker process on this machine.

    The parent sends the work over standard input and keeps it open; when it closes, the parent has ended, and this
    process stops as well.
    """
    cores, folder, call = pickle.load(sys.stdin.buffer)
    keep_to(cores)  # before torch counts them
    tolerate_output_errors()  # of the log, on a full disk

    def end_with_parent() -> None:
        os.read(sys.stdin.fileno(), 1)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=end_with_parent, daemon=True).start()
    sys.exit(attempt(lambda: pickle.loads(call)(), folder))


def attempt(call: Callable[[], None], folder: Path) -> int:
    """Make a run in this process, with its folder locked. Errors are printed at the end of its log.

    Returns:
        The exit status: 0 if the run succeeded.
    """
    console.PLAIN_EVERY = LOG_EVERY
    try:
        with lock_folder(folder, PATIENCE):
            call()
    except UserError as error:
        notify(as_command_line(str(error)))
        return USER_ERROR
    except KeyboardInterrupt as stop:
        notify(as_command_line(str(stop)) or "interrupted")
        return 128 + getattr(stop, "signum", signal.SIGINT)
    except Exception:
        traceback.print_exc()
        return 1
    return 0
