import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # two test processes on two cores

import pytest
import torch


@pytest.fixture(autouse=True)
def _one_thread_and_a_seed():
    torch.set_num_threads(1)
    torch.manual_seed(0)
