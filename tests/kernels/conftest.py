"""Kernels are tested with the versions of Triton that they are used with."""

from hypersphere.kernels import HAS_TRITON

collect_ignore_glob = [] if HAS_TRITON else ["test_*.py"]
