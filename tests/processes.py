"""Real processes of the command line, quickly started: forked from one that has loaded torch already."""

import json
import multiprocessing
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

_LOADED = ["hypersphere.pretraining", "hypersphere.nn.resnet", "sklearn.datasets", "tyro", "rich.console"]


class Process:
    """As subprocess.Popen, of `hypersphere` with these words."""

    def __init__(self, *words, file_limit=None):
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(_LOADED)
        self.words = [str(word) for word in words]
        self._told = Path(tempfile.mkdtemp())
        self._process = context.Process(target=_command, args=(self.words, self._told, file_limit))
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


def completed(*words, file_limit=None):
    process = Process(*words, file_limit=file_limit)
    stdout, stderr = process.communicate()
    return subprocess.CompletedProcess(process.words, process.returncode, stdout, stderr)


def _command(words, told, file_limit):
    from hypersphere.cli import main

    for stream, name in ((sys.stdout, "stdout"), (sys.stderr, "stderr")):
        os.dup2(os.open(told / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream.fileno())
    if file_limit is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_limit, file_limit))
    sys.exit(main(words))


_ONE_BY_ONE = """if True:
    import contextlib, io, json, sys
    from hypersphere.cli import main

    found = []
    for words in json.load(sys.stdin):
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
            status = main(words)
        found.append((words, status, out.getvalue(), err.getvalue()))
    print(json.dumps(found))"""


def without_privileges(*commands):
    """Commands, one after the other in one process, to which modes of files apply even if root starts it."""
    powers = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
    with tempfile.NamedTemporaryFile() as file:
        os.chmod(file.name, 0)
        unknown = powers and not shutil.which("setpriv")
        if unknown or subprocess.run([*powers, "test", "!", "-r", file.name]).returncode:
            pytest.skip("nothing can be forbidden here")
    asked = json.dumps([[str(word) for word in words] for words in commands])
    process = [*powers, sys.executable, "-c", _ONE_BY_ONE]
    told = subprocess.run(process, input=asked, stdout=subprocess.PIPE, text=True, timeout=120, check=True).stdout
    return [subprocess.CompletedProcess(*found) for found in json.loads(told)]
