"""The option `where` of regularizers: which layers it selects."""

import reprlib
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from torch import nn

Choice = Callable[[str, nn.Module], bool]
Part = str | nn.Module | type[nn.Module]
Where = Part | Iterable[Part] | Choice | None
PARALLEL = (nn.DataParallel, nn.parallel.DistributedDataParallel)
# parts of names that wrappers add: torch.compile, FullyShardedDataParallel, activation checkpointing
WRAPPED = {"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"}


def choices(where: Where, whole: Mapping[str, str]) -> list[tuple[str, Choice]]:
    """Each part of `where`: its description, and a function of (plain name, module). `whole` is from `plain_names`."""
    if where is None:
        return [("the model", lambda name, module: True)]
    if callable(where) and not isinstance(where, nn.Module | type):
        return [("the selection of where()", where)]
    parts = parts_of(where)
    if not parts:
        raise ValueError("where is empty: name a sub-network, or omit `where` for the whole model")
    return [_choice(part, whole) for part in parts]


def parts_of(where: Where) -> list[Any]:
    """The names, patterns, modules and classes in `where`, or the function that it is."""
    return list(where) if isinstance(where, Iterable) and not isinstance(where, str | nn.Module) else [where]


def unknown_names(parts: Iterable[Any], model: nn.Module) -> list[str]:
    """Names and patterns that match no module of a model, of whatever kind."""
    parallel = _parallel(model)
    names = {_unwrapped(inside) for name, _ in model.named_modules() for inside in (name, _inside(name, parallel))}
    if all(name in ("", "module") or name.startswith("module.") for name in names):  # a wrapper of another library
        names |= {name.removeprefix("module.") for name in names}
    given = [part for part in parts if isinstance(part, str)]
    return [part for part in given if not any(_matches(name, _unwrapped(part)) for name in names)]


def _choice(part: Any, whole: Mapping[str, str]) -> tuple[str, Choice]:
    if isinstance(part, str):
        plain = _unwrapped(part)
        return repr(part), lambda name, module: _matches(name, plain) or _matches(whole[name], plain)
    if isinstance(part, nn.Module):
        inside = set(part.modules())
        return f"the given {type(part).__name__}", lambda name, module: module in inside
    if isinstance(part, type) and issubclass(part, nn.Module):
        return f"all {part.__name__}", lambda name, module: isinstance(module, part)
    wanted = "names, patterns, modules, their classes or a function of (name, module)"
    raise TypeError(f"where must be {wanted}, got {reprlib.repr(part)}")


def _matches(name: str, pattern: str) -> bool:
    return name == pattern or name.startswith(pattern + ".") or fnmatchcase(name, pattern)


def plain_names(model: nn.Module, names: Sequence[str]) -> dict[str, str]:
    """Full names of layers by their names inside wrappers, so that users may use either.

    DataParallel and DistributedDataParallel add a part `module`; wrappers of other libraries put it before all names.
    """
    parallel = _parallel(model)
    plain = {_unwrapped(_inside(name, parallel)): _unwrapped(name) for name in names}
    if len(plain) < len(names):  # ambiguous: a wrapper with layers of its own
        return {name: name for name in names}
    others = all(name.startswith("module.") for name in plain)
    return {name.removeprefix("module."): whole for name, whole in plain.items()} if others else plain


def _parallel(model: nn.Module) -> set[str]:
    return {name for name, module in model.named_modules() if isinstance(module, PARALLEL)}


def _inside(name: str, parallel: Container[str]) -> str:
    parts = name.split(".")
    return ".".join(part for n, part in enumerate(parts) if part != "module" or ".".join(parts[:n]) not in parallel)


def _unwrapped(name: str) -> str:
    return ".".join(part for part in name.split(".") if part not in WRAPPED)
