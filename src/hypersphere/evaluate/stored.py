"""Stored features and their labels, as probes take them: tensors or arrays, of which clean ones are made."""

import functools
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

import numpy as np
import torch
from torch import Tensor

from hypersphere.errors import UserError
from hypersphere.sphere.unit import without_autocast

Array = Tensor | np.ndarray
Options = ParamSpec("Options")
Found = TypeVar("Found")


def of_stored(
    probe: Callable[Concatenate[Tensor, Tensor, Tensor, Tensor, Options], Found],
) -> Callable[Concatenate[Array, Array, Array, Array, Options], Found]:
    """A probe of any (features, labels, queries, truth), which itself sees `clean` ones; it computes in float32 and may
    learn, whatever mode surrounds it."""

    @functools.wraps(probe)
    def cleaned(
        features: Array, labels: Array, queries: Array, truth: Array, *args: Options.args, **kwargs: Options.kwargs
    ) -> Found:
        with torch.inference_mode(False):
            sets = clean(features, labels, queries, truth)
            with without_autocast(sets[0]):
                return probe(*sets, *args, **kwargs)

    return cleaned


def clean(features: Array, labels: Array, queries: Array, truth: Array) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Those whose label is known (not below 0). Classes are numbered 0 … C − 1, as far as they have an example; the
    truth of a query of another class is −1."""
    points, known = _labelled(features, labels, "features", "labels")
    asked, wanted = _labelled(queries, truth, "queries", "truth")
    if asked.shape[1] != points.shape[1]:
        raise ValueError(f"queries must have {points.shape[1]} dimensions, as the features do, not {asked.shape[1]}")
    classes = known.unique()
    return points, place_among(classes, known), asked, place_among(classes, wanted)


def place_among(classes: Tensor, labels: Tensor) -> Tensor:
    """Of each label among the classes, which are in order; −1: it is none of them."""
    places = torch.searchsorted(classes, labels.contiguous()).clamp_(max=len(classes) - 1)
    return torch.where(classes[places] == labels, places, -1)


def _labelled(features: Array, labels: Array, of: str, name: str) -> tuple[Tensor, Tensor]:
    """N × D in float32, and N in int64; labels may be N × 1."""
    points, known = _numbers(features, of), _numbers(labels, name)
    if points.ndim != 2 or points.shape[1] == 0:
        raise ValueError(f"{of} must be points × dimensions, not of shape {tuple(points.shape)}")
    rows = len(points)
    if known.is_floating_point() or known.shape not in ((rows,), (rows, 1)):
        wanted = f"must be whole numbers, one for each of the {rows} {of}"
        raise ValueError(f"{name} {wanted}, not {known.dtype} of shape {tuple(known.shape)}")
    points, known = points.float(), known.flatten().to(points.device, torch.int64)
    if not (there := known >= 0).all():
        points, known = points[there], known[there]
    if not len(known):
        raise ValueError(f"{name} must say the class of one or more of the {rows} {of}")
    if bad := int((~points.isfinite().all(dim=1)).sum()):
        raise UserError(f"{of} must be finite: {bad} of {len(points)} hold NaN or infinity")
    return points, known


def _numbers(x: Array, name: str) -> Tensor:
    """Without gradient. An array may be read-only, or go backwards: it is copied."""
    if isinstance(x, Tensor) and not x.is_complex():
        return x.detach()
    if isinstance(x, np.ndarray) and x.dtype.kind in "biuf":
        return torch.from_numpy(x.astype(np.float32 if x.dtype.kind == "f" else np.int64))
    what = x.dtype if isinstance(x, Tensor | np.ndarray) else type(x).__name__
    raise TypeError(f"{name} must be a tensor or array of numbers, not {what}")
