"""Many runs at once, in real processes that are really killed. The work is a few lines of Python, without torch."""

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from hypersphere.errors import UserError
from hypersphere.sweeps import FanOut, Work, attempt, fan_out, processes, time_left
from hypersphere.util.files import lock_folder

# notes its process, the GPU it sees, and how often it was tried; then what is said
NOTE = """if True:
    import os, signal, sys, time
    from pathlib import Path
    folder = Path({folder!r})
    tries = folder / "{name}.tries"
    tries.write_text((tries.read_text() if tries.exists() else "") + f"{{os.getpid()}} ")
    first = len(tries.read_text().split()) == 1
    {then}
    (folder / "{name}.done").touch()
"""
DIE = "os.kill(os.getpid(), signal.SIGKILL)"


def work(folder, name, then="pass"):
    return Work(name, f"the run {name}", partial(exec, NOTE.format(folder=str(folder), name=name, then=then)))


def tries(folder, name):
    return len((folder / f"{name}.tries").read_text().split())


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def wait_until(condition, seconds=20.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.02)


def test_one_that_dies_is_taken_up_again_and_the_others_do_not_notice(tmp_path, capfd):
    works = [
        work(tmp_path, "plain"),
        work(tmp_path, "killed-once", f"if first: {DIE}"),
        work(tmp_path, "killed-always", DIE),
        work(tmp_path, "crashes", "raise ArithmeticError('no such number')"),
        work(tmp_path, "mistaken", "from hypersphere.errors import UserError; raise UserError('no such data')"),
        work(tmp_path, "last"),
    ]
    after = []

    def note():
        after.append(1)
        raise OSError("the page is full")

    failed = fan_out(works, tmp_path / "logs", FanOut(workers=2, retries=2), "cpu", note)
    assert failed == {
        "the run killed-always": "killed by SIGKILL",
        "the run crashes": "ArithmeticError: no such number",
        "the run mistaken": "no such data",
    }
    assert {file.stem for file in tmp_path.glob("*.done")} == {"plain", "killed-once", "last"}
    assert len(after) == 3
    wanted = {"plain": 1, "killed-once": 2, "killed-always": 3, "crashes": 3, "mistaken": 1, "last": 1}
    assert {name: tries(tmp_path, name) for name in wanted} == wanted
    told = capfd.readouterr().err
    assert "the run killed-once: killed by SIGKILL; restarting it (1 of 2)" in told
    assert "the run last (6 of 6, about 0 s left)" in told
    assert "after the run plain: the page is full" in told
    assert "Traceback" not in told
    assert "Traceback" in (tmp_path / "logs" / "crashes" / "log.txt").read_text()


def test_each_has_a_gpu_and_a_share_of_the_cores(tmp_path, monkeypatch):
    cores = sorted(os.sched_getaffinity(0))
    monkeypatch.setattr(processes, "_gpus", lambda: ["3", "GPU-5"])
    see = "(folder / os.environ['CUDA_VISIBLE_DEVICES']).write_text(str(sorted(os.sched_getaffinity(0))))"
    both_there = "exec('while len(list(folder.glob(\\'*.tries\\'))) < 2: time.sleep(0.01)')"
    works = [work(tmp_path, name, f"{see}; {both_there}") for name in "ab"]
    assert fan_out(works, tmp_path / "logs", FanOut()) == {}
    shares = [cores[0::2], cores[1::2]] if len(cores) > 1 else [cores, cores]
    assert [(tmp_path / gpu).read_text() for gpu in ("3", "GPU-5")] == list(map(str, shares))
    assert processes.Processes(None, "cuda").places == 2
    assert processes.Processes(None, "cpu").places == processes.Processes(None, "cuda:1").places == 1
    three = processes.Processes(3, "auto")
    assert [slot.gpu for slot in three.free] == ["3", "GPU-5", "3"]
    assert three.sharing == 2
    assert processes.Processes(2, "auto").sharing == 1


def test_runs_that_share_a_device_know_it(tmp_path, monkeypatch):
    monkeypatch.delenv("HYPERSPHERE_SHARED", raising=False)
    see = "(folder / 'told').write_text(os.environ.get('HYPERSPHERE_SHARED', 'no'))"
    for workers, told in ((1, "no"), (2, "2")):
        assert fan_out([work(tmp_path, f"of-{workers}", see)], tmp_path / "logs", FanOut(workers=workers), "cpu") == {}
        assert (tmp_path / "told").read_text() == told


def test_gpus_are_those_that_this_process_may_use(monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    for told, wanted in (("2,5", ["2", "5"]), (None, ["0", "1"])):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", told) if told else monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
        assert processes._gpus() == wanted


def test_no_two_work_in_one_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(attempt, "PATIENCE", 0.3)
    with lock_folder(tmp_path):
        assert attempt.attempt(lambda: pytest.fail("it ran"), tmp_path) == 2
        assert "is in use by another process" in capsys.readouterr().err
        with pytest.raises(UserError, match="in use"), lock_folder(tmp_path):
            pass
    with lock_folder(tmp_path, 1.0):
        pass
    code = "import pathlib, time\nfrom hypersphere.util.files import lock_folder\n"
    code += f"with lock_folder(pathlib.Path({str(tmp_path)!r})):\n"
    other = subprocess.Popen([sys.executable, "-c", code + "    print(flush=True); time.sleep(0.5)"], stdout=-1)
    other.stdout.readline()
    with lock_folder(tmp_path, 20.0):
        assert other.wait(20) == 0
    other.stdout.close()


PARENT = """
import sys
from functools import partial
from pathlib import Path
from hypersphere.sweeps import FanOut, Work, fan_out, processes
processes.GRACE = 0.5
works = [Work(name, name, partial(exec, code)) for name, code in zip("ab", sys.argv[2:])]
fan_out(works, Path(sys.argv[1]), FanOut(workers=2), "cpu")
"""


def test_in_this_process_the_signal_is_that_of_the_run(tmp_path):
    from hypersphere.train import RunInterrupted

    def stopped():
        raise RunInterrupted(3, signal.SIGTERM)

    with pytest.raises(KeyboardInterrupt) as told:
        fan_out([Work("a", "the run a", stopped)], tmp_path, FanOut(workers=0), "cpu")
    assert told.value.signum == signal.SIGTERM


STUBBORN = "signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
WITH_CHILD = "import subprocess; (folder / 'grandchild').write_text(str(subprocess.Popen(['sleep', '60']).pid)); " + (
    "time.sleep(60)"
)


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_however_it_ends_no_process_is_left(tmp_path, signum):
    """One run ignores requests, and is killed; another has a process of its own."""
    thens = ("time.sleep(60)" if signum == signal.SIGKILL else STUBBORN, WITH_CHILD)
    codes = [work(tmp_path, name, then).call.args[0] for name, then in zip("ab", thens, strict=True)]
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path / "logs"), *codes], stderr=subprocess.PIPE)
    wait_until(lambda: (tmp_path / "a.tries").exists() and (tmp_path / "grandchild").exists())
    time.sleep(0.1)
    pids = [int((tmp_path / name).read_text()) for name in ("a.tries", "b.tries")]
    grandchild = int((tmp_path / "grandchild").read_text())
    assert all(map(alive, (*pids, grandchild)))
    parent.send_signal(signum)
    _, told = parent.communicate(timeout=20)
    if signum == signal.SIGKILL:
        wait_until(lambda: not any(map(alive, pids)))  # what sleeps no longer: its standard input ended
        os.kill(grandchild, signal.SIGKILL)
    else:
        assert not any(map(alive, (*pids, grandchild)))
        assert b"stopped: 0 of 2 runs are done" in told


def test_the_time_left_counts_what_is_under_way():
    assert time_left([], [1.0], 5, 2) is None
    assert time_left([10.0, 20.0], [], 4, 1) == 60  # one after the other: as many means
    assert time_left([10.0], [4.0, 12.0], 2, 2) == (10 + 10 + 6 + 0) / 2
    assert time_left([10.0], [], 1, 8) == 10  # more places than runs


def test_options_are_checked(tmp_path, monkeypatch):
    run = partial(fan_out, [work(tmp_path, "a")], tmp_path)
    for how, message in (
        (FanOut(workers=-1), "`workers` must be at least 0"),
        (FanOut(retries=-1), "`retries` must be at least 0"),
        (FanOut(workers=0, ray=""), "exclude each other"),
    ):
        with pytest.raises(UserError, match=message):
            run(how)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"needs the package ray: pip install ray"):
        run(FanOut(ray=""))
    assert not (tmp_path / "a.tries").exists()


ON_RAY = """
import sys
from functools import partial
from pathlib import Path
from hypersphere.sweeps import FanOut, Work, fan_out
names, codes = sys.argv[2].split(), sys.argv[3:]
works = [Work(name, name, partial(exec, code)) for name, code in zip(names, codes)]
print(fan_out(works, Path(sys.argv[1]), FanOut(workers=2, ray="local"), "cpu"))
"""


def test_on_a_ray_cluster_a_killed_worker_costs_its_own_run_only(tmp_path):
    pytest.importorskip("ray")
    thens = dict.fromkeys("abcd", "pass") | {
        "killed": f"if first: {DIE}",
        "crashes": "raise ArithmeticError('odd')",
    }
    codes = [work(tmp_path, name, then).call.args[0] for name, then in thens.items()]
    command = [sys.executable, "-c", ON_RAY, str(tmp_path / "logs"), " ".join(thens), *codes]
    found = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert found.stdout.splitlines()[-1] == "{'crashes': 'ArithmeticError: odd'}", found
    assert {file.stem for file in tmp_path.glob("*.done")} == {*"abcd", "killed"}
    assert (tries(tmp_path, "killed"), tries(tmp_path, "crashes"), tries(tmp_path, "a")) == (2, 3, 1)
    assert "killed: its Ray worker died; restarting it (1 of 2)" in found.stderr


def test_nothing_is_started_that_would_not_be_done_in_time(tmp_path, capfd):
    """Of three that are to take 1, 100 and 1 s the second is left out; one that takes longer is stopped, and saves."""
    ends = "signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))"
    save = "try: time.sleep(60)\n    except BaseException: (folder / 'saved').touch(); raise"
    works = [
        work(tmp_path, "short")._replace(seconds=1.0),
        work(tmp_path, "long")._replace(seconds=100.0),
        work(tmp_path, "late", f"{ends}\n    {save}")._replace(seconds=0.1),
    ]
    began = time.monotonic()
    assert fan_out(works, tmp_path / "logs", FanOut(workers=1, retries=0), "cpu", time_limit=6.0) == {}
    assert 5.5 < time.monotonic() - began < 15
    assert {file.stem for file in tmp_path.glob("*.tries")} == {"short", "late"}
    assert {file.stem for file in tmp_path.glob("*.done")} == {"short"}
    assert (tmp_path / "saved").exists()
    told = capfd.readouterr().err
    assert "the run long: not started, it would take about" in told


def test_a_slow_machine_makes_others_be_expected_to_take_as_much_longer(tmp_path):
    """The first was to take 0.1 s and takes 2: the second, of 1 s, would take 20."""
    works = [
        work(tmp_path, "slow", "time.sleep(2)")._replace(seconds=0.1),
        work(tmp_path, "other")._replace(seconds=1.0),
    ]
    fan_out(works, tmp_path / "logs", FanOut(workers=1), "cpu", time_limit=12.0)
    assert {file.stem for file in tmp_path.glob("*.done")} == {"slow"}
