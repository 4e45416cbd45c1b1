"""Kernels compile for GPUs that are not here."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")


def test_views_of_photographs_compile_without_spilled_registers(tmp_path):
    """`python -m tests.kernels.compiling 90` compiles all other kernels, too, which takes half a minute."""
    own = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    words = [sys.executable, "-W", "ignore", "-m", "tests.kernels.compiling", "90", "views"]
    here = Path(__file__).parents[2]
    made = subprocess.run(
        words, capture_output=True, text=True, cwd=here, env={**own, "TRITON_CACHE_DIR": str(tmp_path)}, check=False
    )
    assert made.returncode == 0, made.stderr[-2000:]
    kernels = [json.loads(line) for line in made.stdout.splitlines()]
    assert {kernel["name"] for kernel in kernels} == {
        "packed_crop_kernel", "means_kernel", "colour_kernel", "blur_kernel"
    }  # fmt: skip
    assert all(kernel["REG"] > 0 == kernel["STACK"] for kernel in kernels)
