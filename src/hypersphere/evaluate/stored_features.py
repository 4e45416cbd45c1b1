"""Checks stored features and their labels, tensors or arrays, before a probe sees them."""

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
Returned = TypeVar("Returned")


def on_stored_features(
    probe: Callable[Concatenate[Tensor, Tensor, Tensor, Tensor, Options], Returned],
) -> Callable[Concatenate[Array, Array, Array, Array, Options], Returned]:
    """Let a probe of (features, labels, queries, truth) take any tensors or arrays.

    The probe itself gets the output of `clean`. It computes in float32 with gradients possible, whatever mode it is
    called in.
    """

    @functools.wraps(probe)
    def cleaned(
        features: Array, labels: Array, queries: Array, truth: Array, *args: Options.args, **kwargs: Options.kwargs
    ) -> Returned:
        with torch.inference_mode(False):
            sets = clean(features, labels, queries, truth)
            with without_autocast(sets[0]):
                return probe(*sets, *args, **kwargs)

    return cleaned


def clean(features: Array, labels: Array, queries: Array, truth: Array) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Rows with a label of at least 0, with classes numbered from 0 in the order of `labels`.

    Queries of a class that `labels` does not have get the class −1.
    """
    points, known = _labelled(features, labels, "features", "labels")
    asked, wanted = _labelled(queries, truth, "queries", "truth")
    if asked.shape[1] != points.shape[1]:
        raise ValueError(f"queries must have {points.shape[1]} dimensions like the features, got {asked.shape[1]}")
    classes = known.unique()
    return points, class_indices(classes, known), asked, class_indices(classes, wanted)


def class_indices(classes: Tensor, labels: Tensor) -> Tensor:
    """Index of each label in the sorted `classes`, or −1."""
    places = torch.searchsorted(classes, labels.contiguous()).clamp_(max=len(classes) - 1)
    return torch.where(classes[places] == labels, places, -1)


def _labelled(features: Array, labels: Array, of: str, name: str) -> tuple[Tensor, Tensor]:
    """Features of shape (N, D) in float32 and labels of shape (N,) in int64; labels may be given as (N, 1)."""
    points, known = _numbers(features, of), _numbers(labels, name)
    if points.ndim != 2 or points.shape[1] == 0:
        raise ValueError(f"{of} must have shape (N, D), got {tuple(points.shape)}")
    rows = len(points)
    if known.is_floating_point() or known.shape not in ((rows,), (rows, 1)):
        got = f"{known.dtype} of shape {tuple(known.shape)}"
        raise ValueError(f"{name} must be integers, one for each of the {rows} {of}, got {got}")
    points, known = points.float(), known.flatten().to(points.device, torch.int64)
    if not (valid := known >= 0).all():
        points, known = points[valid], known[valid]
    if not len(known):
        raise ValueError(f"{name} must have a class, which is at least 0, for some of the {rows} {of}")
    if bad := int((~points.isfinite().all(dim=1)).sum()):
        raise UserError(f"{of} must be finite: {bad} of {len(points)} have NaN or infinity")
    return points, known


def _numbers(x: Array, name: str) -> Tensor:
    """A tensor without gradient. An array is copied, since it may be read-only or have negative strides."""
    if isinstance(x, Tensor) and not x.is_complex():
        return x.detach()
    if isinstance(x, np.ndarray) and x.dtype.kind in "biuf":
        return torch.from_numpy(x.astype(np.float32 if x.dtype.kind == "f" else np.int64))
    got = x.dtype if isinstance(x, Tensor | np.ndarray) else type(x).__name__
    raise TypeError(f"{name} must be a tensor or array of numbers, got {got}")
