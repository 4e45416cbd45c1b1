"""Real processes of the command line, quickly started: forked from one that has loaded torch already."""

import ctypes
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

_LOADED = ["hypersphere.runs.pretraining", "hypersphere.nn.resnet", "sklearn.datasets", "tyro", "rich.console"]
_LOADED += ["torch.utils.tensorboard"]
_ALL_IS_ALLOWED = 77


class Process:
    """As subprocess.Popen, of `hypersphere` with these words. `prepare` is called in it first."""

    def __init__(self, *words, prepare=None):
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(_LOADED)
        self.words = [str(word) for word in words]
        self._told = Path(tempfile.mkdtemp())
        self._process = context.Process(target=_command, args=(self.words, self._told, prepare, {**os.environ}))
        self._process.start()

    def poll(self):
        return self._process.exitcode

    def wait(self, timeout=120):
        self._process.join(timeout)
        assert self._process.exitcode is not None, f"still running after {timeout} s: {self.words}"
        return self._process.exitcode

    def send_signal(self, signum):
        os.kill(self._process.pid, signum)

    def kill(self):
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout=120):
        """What it wrote, once it has ended."""
        self.wait(timeout)
        return tuple((self._told / name).read_text() for name in ("stdout", "stderr"))

    @property
    def returncode(self):
        return self.wait()


def completed(*words, prepare=None):
    process = Process(*words, prepare=prepare)
    stdout, stderr = process.communicate()
    return subprocess.CompletedProcess(process.words, process.returncode, stdout, stderr)


def _command(words, told, prepare, environment):
    import tests.networks  # noqa: F401  which are named; the server cannot load them where it began in another folder
    from hypersphere.cli import main

    os.environ.clear()  # of the test that came first
    os.environ.update(environment)
    for stream, name in ((sys.stdout, "stdout"), (sys.stderr, "stderr")):
        os.dup2(os.open(told / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream.fileno())
    if prepare is not None:
        prepare()
    sys.exit(main(words))


def write_no_file_beyond(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def write_ascii_alone():
    sys.stdout.reconfigure(encoding="ascii", errors="strict")


def _obey_modes():
    """Root gives up its right to read and write what modes of files forbid (capabilities 1 and 2)."""
    if os.geteuid() == 0:
        system, header = ctypes.CDLL(None), (ctypes.c_uint32 * 2)(0x20080522, 0)
        rights = (ctypes.c_uint32 * 6)()  # effective, permitted and inheritable ones; twice, of 32 each
        system.capget(header, rights)
        rights[0] &= ~0b110
        rights[1] &= ~0b110
        system.capset(header, rights)
    with tempfile.NamedTemporaryFile() as file:
        os.chmod(file.name, 0)
        if os.access(file.name, os.R_OK):
            sys.exit(_ALL_IS_ALLOWED)


def without_privileges(*commands):
    """Commands, one after the other, to which modes of files apply even if root starts them."""
    found = [completed(*words, prepare=_obey_modes) for words in commands]
    if any(each.returncode == _ALL_IS_ALLOWED for each in found):
        pytest.skip("nothing can be forbidden here")
    return found
