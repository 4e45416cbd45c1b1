"""Several processes, each with its share of every batch, learn what one learns from the whole; and end together.

The tests share one job, and are one test for that: with pytest-xdist each worker would start its own.
"""

import json
import os
import signal
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch

from hypersphere.train import load_checkpoint, read_metrics
from tests.distributed.own import LOOPS, loop_of_ones_own, sharded_energy
from tests.distributed.updates import CASES, state_after


def test_processes_of_a_job(tmp_path):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.distributed.jobs", str(tmp_path)]
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, env=environment, cwd=root, start_new_session=True) as job:
        try:
            assert job.wait(timeout=240) == 0
        except subprocess.TimeoutExpired:
            os.killpg(job.pid, signal.SIGKILL)  # leaving the block waits for the job
            raise
    found = json.loads((tmp_path / "found.json").read_text())
    updates_are_those_of_one_process(tmp_path)
    so_are_those_of_loops_of_ones_own(tmp_path)
    runs_go_on_with_any_number_of_processes(tmp_path, found["resumed"])
    a_killed_process_is_replaced(tmp_path)
    a_process_that_stalls_ends_all(tmp_path, found["stalled"])
    what_the_first_cannot_write_ends_all(tmp_path, found["full"])
    shares_are_equal(found["uneven"])
    all_are_told_the_same(found["different"])
    files_are_shared_out(tmp_path, found["files"])
    monitors_of_the_first_wait_for_nobody(tmp_path, found["monitored"])
    a_users_method_may_have_idle_weights_and_dropout(tmp_path, found["own"])
    nothing_is_left_behind(job.pid, found)


def updates_are_those_of_one_process(out):
    """Of every method: gradients, BatchNorm's running statistics, queues, centres, vocabularies, labels."""
    one, other = (torch.load(out / f"updates-{rank}.pt") for rank in (0, 1))
    for case, config in CASES.items():
        wanted = state_after(config)
        assert one[case].keys() == other[case].keys() == wanted.keys()
        single = config.method == "obow"
        largest = max(float(value.abs().max()) for name, value in wanted.items() if name.startswith("gradient"))
        for name, value in wanted.items():
            assert torch.equal(one[case][name], other[case][name]), (case, name)
            near = {"rtol": 1e-4, "atol": 1e-5 * largest} if single else {"rtol": 1e-9, "atol": 1e-11 * largest}
            told = partial("{}, {}: {}".format, case, name)
            torch.testing.assert_close(one[case][name], value, **near, msg=told)


def so_are_those_of_loops_of_ones_own(out):
    wanted = [loop_of_ones_own(kind, slice(None)) for kind in LOOPS]
    (energy, grads) = sharded_energy()
    assert grads.keys() == {"0.weight", "2.weight"}
    for rank in (0, 1):
        torch.testing.assert_close(torch.load(out / f"loop-{rank}.pt"), wanted)
        sharded, sharded_grads = torch.load(out / f"sharded-{rank}.pt")
        assert sharded == pytest.approx(energy)
        torch.testing.assert_close(sharded_grads, grads)
        assert (
            (out / f"unequal-{rank}").read_text().startswith("processes must have the same number of rows, got 3, 4: ")
        )


def assert_same_curve(run, whole):
    ours, theirs = (read_metrics(folder / "metrics.jsonl") for folder in (run, whole))
    assert [line["step"] for line in ours] == [line["step"] for line in theirs]
    for a, b in zip(ours, theirs, strict=True):
        assert a == pytest.approx(b, rel=1e-4)
    one, other = (load_checkpoint(folder / "checkpoint.pt") for folder in (run, whole))
    assert one["step"] == other["step"]
    torch.testing.assert_close(one["method"], other["method"], rtol=1e-3, atol=1e-4)


def runs_go_on_with_any_number_of_processes(out, found):
    assert found["two"]["codes"] == [143, 143]  # one was asked to stop
    assert found["two"]["told"][-1].startswith("hypersphere: stopped after step 4 of 10")
    assert [line.partition(": ")[2].split()[0] for line in found["two"]["told"]] == ["byol:", "stopped"]
    assert found["three"]["codes"] == [143] * 3
    assert found["three"]["told"][0].endswith("resuming at step 4 of 10")
    assert found["one"]["codes"] == [0]
    assert found["one"]["told"][0].endswith("resuming at step 8 of 10")
    assert_same_curve(out / "resumed", out / "whole")


def a_killed_process_is_replaced(out):
    """By SIGKILL in the sixth update, under torchrun's agent; the folder of no name is found again."""
    (run,) = (out / "runs").iterdir()
    assert_same_curve(run, out / "whole")


def a_process_that_stalls_ends_all(out, found):
    """The one that waits ends after its 1 s; the other, which slept for 3 s, when it wakes."""
    assert found["codes"] == [2, 2]
    began, *told = found["told"]
    assert began.startswith("hypersphere: byol: ")
    assert all(line.endswith("ended, or did not answer within --timeout 1 s") for line in told)
    waited, slept = (float((out / f"stalled-{rank}").read_text()) for rank in (0, 1))
    assert 1 < waited < slept < 30
    assert read_metrics(out / "stalled" / "metrics.jsonl")[-1]["step"] == 2


def what_the_first_cannot_write_ends_all(out, found):
    assert found["codes"] == [2, 2]
    assert found["told"][0].startswith("hypersphere: byol: ")
    assert found["told"][1:] == [f"hypersphere: could not write {out}/full/checkpoint.pt: File too large"]
    assert found["seconds"] < 30


def shares_are_equal(found):
    assert found["codes"] == [2, 2, 2]
    wanted = "hypersphere: --batch 128 cannot be split equally among 3 processes: choose 126 or 129"
    assert found["told"] == [wanted]


def all_are_told_the_same(found):
    assert found["codes"] == [2, 2]
    zero, one = "seed=0, precision=float32", "seed=1, precision=bfloat16"
    wanted = f"hypersphere: ranks were started with different options: rank 0 has {zero}, rank 1 has {one}"
    assert found["told"] == [wanted]


def files_are_shared_out(out, found):
    assert found["codes"] == [0, 0]
    assert_same_curve(out / "files-two", out / "files-one")


def monitors_of_the_first_wait_for_nobody(out, found):
    assert found["codes"] == [0, 0]
    last = read_metrics(out / "monitored" / "metrics.jsonl")[-1]
    assert last.keys() >= {"knn", "knn_at_start"}


def a_users_method_may_have_idle_weights_and_dropout(out, found):
    assert found["first"]["codes"] == [143, 143]
    assert found["second"]["codes"] == [0, 0]
    assert not [line for line in found["second"]["told"] if "unused" in line or "Warning" in line]
    for rank in (0, 1):  # the same draws as without a stop
        assert (out / f"own-dropped-{rank}").read_text() == (out / f"own-whole-dropped-{rank}").read_text()
    one, other = ((out / f"own-dropped-{rank}").read_text().splitlines() for rank in (0, 1))
    assert len(one) == len(other) == 10
    assert len({*one, *other}) == 20


def nothing_is_left_behind(session, found):
    with pytest.raises(ProcessLookupError):
        os.killpg(session, 0)
    for job in (found["resumed"]["two"], found["stalled"], found["full"]):
        with socket.socket() as free:
            free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            free.bind(("localhost", job["port"]))
