"""Two processes, each with half of every batch, learn what one learns from the whole."""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import torch

from tests.distributed.updates import CASES, state_after


def test_gradients_and_updates_are_those_of_one_process(tmp_path):
    """Of every method, with BatchNorm's running statistics, queues, centres, vocabularies and labels."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.distributed.jobs", str(tmp_path)]
    subprocess.run(command, check=True, timeout=120, env=environment, cwd=Path(__file__).parents[2])
    one, other = (torch.load(tmp_path / f"updates-{rank}.pt") for rank in (0, 1))
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
