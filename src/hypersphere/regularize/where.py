"""What `where` may say, and which layers it means."""

import reprlib
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Any

from torch import nn

Choice = Callable[[str, nn.Module], bool]
Part = str | nn.Module | type[nn.Module]
Where = Part | Iterable[Part] | Choice | None
# parts of names that wrappers add: torch.compile, FullyShardedDataParallel, activation checkpointing
WRAPPED = {"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"}


def choices(where: Where, before: str) -> list[tuple[str, Choice]]:
    """Each part of `where` in words, and as a function of a layer's plain name and module. `before`: as plain_names
    found it."""
    if where is None:
        return [("it", lambda name, module: True)]
    if callable(where) and not isinstance(where, nn.Module | type):
        return [("what where() chooses", where)]
    parts = list(where) if isinstance(where, Iterable) and not isinstance(where, str | nn.Module) else [where]
    if not parts:
        raise ValueError("where is empty: name a sub-network, or leave it out for the whole model")
    return [_choice(part, before) for part in parts]


def _choice(part: Any, before: str) -> tuple[str, Choice]:
    if isinstance(part, str):
        plain = _unwrapped(part)
        return repr(part), lambda name, module: _matches(name, plain) or _matches(before + name, plain)
    if isinstance(part, nn.Module):
        inside = set(part.modules())
        return f"the {type(part).__name__} given", lambda name, module: module in inside
    if isinstance(part, type) and issubclass(part, nn.Module):
        return f"all {part.__name__}", lambda name, module: isinstance(module, part)
    wanted = "names, patterns, modules, their classes or a function of (name, module)"
    raise TypeError(f"where must be {wanted}, not {reprlib.repr(part)}")


def _matches(name: str, pattern: str) -> bool:
    return name == pattern or name.startswith(pattern + ".") or fnmatchcase(name, pattern)


def plain_names(names: Sequence[str]) -> tuple[list[str], str]:
    """Those of the model inside its wrappers; and what DistributedDataParallel has put before them, or nothing."""
    plain = [_unwrapped(name) for name in names]
    before = "module." if all(name.startswith("module.") for name in plain) else ""
    return [name.removeprefix(before) for name in plain], before


def _unwrapped(name: str) -> str:
    return ".".join(part for part in name.split(".") if part not in WRAPPED)
