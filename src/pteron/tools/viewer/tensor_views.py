"""Statistics, histograms and slices of a tensor's values."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np

from pteron.errors import InputError

Array = np.ndarray[Any, Any]

BINS = 48
LARGEST_SIDE = 256


def statistics(array: Array) -> dict[str, Any]:
    """Counts, range, mean, deviation and a histogram. NaN and infinity are only counted."""
    values = array.reshape(-1)
    if values.dtype.kind == "c":
        values = np.abs(values)
    finite = values[np.isfinite(values)] if values.dtype.kind == "f" else values
    facts: dict[str, Any] = {
        "count": int(values.size),
        "nan": int(np.isnan(values).sum()) if values.dtype.kind == "f" else 0,
        "infinite": int(np.isinf(values).sum()) if values.dtype.kind == "f" else 0,
        "zero": int(values.size - np.count_nonzero(values)),
    }
    if not finite.size:
        return facts
    wide = finite.astype(np.float64)
    low, high = float(wide.min()), float(wide.max())
    counts, edges = np.histogram(wide, bins=BINS, range=(low, high if high > low else low + 1))
    return facts | {
        "min": low,
        "max": high,
        "mean": float(wide.mean()),
        "deviation": float(wide.std()),
        "histogram": counts.tolist(),
        "edges": [float(edges[0]), float(edges[-1])],
    }


def slice_view(array: Array, axes: Sequence[int] | None, at: Sequence[int] | None) -> dict[str, Any]:
    """Two dimensions of an array as rows and columns, at an index of the others.

    axes: the dimensions of rows and columns. Default: the last two that are longer than 1.
    at: an index per dimension; those of `axes` are ignored. Default: 0.

    A long side is shown by every n-th element (`step`). The numbers are little-endian float32 in base64.
    """
    array = np.abs(array) if array.dtype.kind == "c" else array
    array = array.reshape((1,) * (2 - array.ndim) + array.shape) if array.ndim < 2 else array
    rows, columns = _axes(array, axes)
    index = [0] * array.ndim if at is None else list(at)
    if len(index) != array.ndim or not all(0 <= i < n for i, n in zip(index, array.shape, strict=True)):
        raise InputError(f"`at` is {at}: expected one index for each dimension of {list(array.shape)}")
    places: list[Any] = list(index)
    places[rows] = places[columns] = slice(None)
    plane = array[tuple(places)]
    plane = plane if rows < columns else plane.T
    step = [-(-n // LARGEST_SIDE) for n in plane.shape]
    shown = np.ascontiguousarray(plane[:: step[0], :: step[1]], "<f4")
    return {
        "shape": list(array.shape),
        "axes": [rows, columns],
        "at": index,
        "step": step,
        "size": list(shown.shape),
        "numbers": base64.b64encode(shown.tobytes()).decode(),
    }


def _axes(array: Array, axes: Sequence[int] | None) -> tuple[int, int]:
    if axes is None:
        long = [d for d, n in enumerate(array.shape) if n > 1][-2:]
        rest = [d for d in reversed(range(array.ndim)) if d not in long]
        rows, columns = sorted([*long, *rest[: 2 - len(long)]])
        return rows, columns
    if len(axes) != 2 or axes[0] == axes[1] or not all(0 <= d < array.ndim for d in axes):
        raise InputError(f"axes is {list(axes)}, expected two different dimensions of {list(array.shape)}")
    return axes[0], axes[1]
