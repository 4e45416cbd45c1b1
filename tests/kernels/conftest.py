"""Kernels are tested with the versions of Triton that they are used with, and its interpreter is made quicker."""

import pytest

from hypersphere.kernels import HAS_TRITON

collect_ignore_glob = [] if HAS_TRITON else ["test_*.py"]


@pytest.fixture(scope="package", autouse=True)
def _the_language_is_patched_once_a_launch():
    """The interpreter does it again in each function that a kernel calls: no change, but a third of its time."""
    import triton.language as tl
    from triton.runtime import interpreter

    def unless_done(fn, patch=interpreter._patch_lang):
        seen = [value for value in fn.__globals__.values() if value is tl or value is tl.core]
        done = not any(tl.core.is_builtin(language.load) for language in seen)
        return interpreter._LangPatchScope() if done else patch(fn)

    with pytest.MonkeyPatch.context() as context:
        context.setattr(interpreter, "_patch_lang", unless_done)
        yield
