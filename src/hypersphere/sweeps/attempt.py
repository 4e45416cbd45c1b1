"""One try at a run, in the process that it is given."""

import os
import pickle
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path

from hypersphere.errors import UserError, with_dashes
from hypersphere.sweeps.work import MISTAKE
from hypersphere.util import progress
from hypersphere.util.cores import keep_to
from hypersphere.util.files import own
from hypersphere.util.progress import tell

PATIENCE = 30.0  # seconds to wait for a folder that processes of a killed run still hold: they end by themselves
TOLD_EVERY = 2.0  # seconds between lines that a run writes of its progress


def child() -> None:
    """What a process on this machine does. Its standard input says what, and ends when whoever started it does."""
    cores, folder, call = pickle.load(sys.stdin.buffer)
    keep_to(cores)  # before torch counts them

    def end_with_parent() -> None:
        os.read(sys.stdin.fileno(), 1)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=end_with_parent, daemon=True).start()
    sys.exit(attempt(lambda: pickle.loads(call)(), folder))


def attempt(call: Callable[[], None], folder: Path) -> int:
    """One try, in this process. What went wrong is told at the end of the log."""
    progress.PLAIN_EVERY = TOLD_EVERY
    try:
        with own(folder, PATIENCE):
            call()
    except UserError as error:
        tell(with_dashes(str(error)))
        return MISTAKE
    except KeyboardInterrupt as stop:
        tell(with_dashes(str(stop)) or "interrupted")
        return 128 + getattr(stop, "signum", signal.SIGINT)
    except Exception:
        traceback.print_exc()
        return 1
    return 0
