"""Kernels compile for GPUs that are not here."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")


SHARED = {86: 101_376, 90: 232_448}  # bytes of shared memory that a program may take, by compute capability


def compiled(capability, part, caches):
    """`python -m tests.kernels.compiling 90` compiles all other kernels, too, which takes half a minute."""
    own = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    words = [sys.executable, "-W", "ignore", "-m", "tests.kernels.compiling", str(capability), part]
    here, env = Path(__file__).parents[2], {**own, "TRITON_CACHE_DIR": str(caches)}
    made = subprocess.run(words, capture_output=True, text=True, cwd=here, env=env, check=False)
    assert made.returncode == 0, made.stderr[-2000:]
    return [json.loads(line) for line in made.stdout.splitlines()]


def test_views_of_photographs_compile_without_spilled_registers(tmp_path):
    kernels = compiled(90, "views", tmp_path)
    assert {kernel["name"] for kernel in kernels} == {
        "packed_crop_kernel", "means_kernel", "colour_kernel", "blur_kernel"
    }  # fmt: skip
    assert all(kernel["REG"] > 0 == kernel["STACK"] for kernel in kernels)


@pytest.mark.parametrize("capability", SHARED)
def test_the_first_layers_on_photographs_fit_into_shared_memory(capability, tmp_path):
    kernels = compiled(capability, "stem", tmp_path)
    assert {kernel["name"] for kernel in kernels} >= {"fold_kernel", "convolution_kernel", "filter_gradient_kernel"}
    assert all(0 <= kernel["PROGRAM"] <= SHARED[capability] for kernel in kernels)
    assert capability < 90 or all(kernel["STACK"] == 0 for kernel in kernels)
