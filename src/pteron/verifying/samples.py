"""Random inputs for a method, and live shapes that are worth a try."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from pteron.ir.values import Shape
from pteron.method import Method
from pteron.method_info import IOInfo
from pteron.report.inspect import sample_ranges

Draw: TypeAlias = Callable[[IOInfo, Shape], np.ndarray[Any, Any]]


def random_arrays(method: Method, seed: int) -> Draw:
    """Normal floats, random booleans, and integers in the range that the program accepts."""
    generator = np.random.default_rng(seed)
    ranges: dict[str, tuple[int, int]] | None = None

    def draw(info: IOInfo, shape: Shape) -> np.ndarray[Any, Any]:
        nonlocal ranges
        dtype = np.dtype(info.array_dtype)
        if dtype.kind in "fc":
            return generator.standard_normal(shape).astype(dtype)
        if dtype.kind == "b":
            return generator.integers(0, 2, shape).astype(dtype)
        if ranges is None:
            ranges = sample_ranges(method.graph)
        low, high = ranges.get(info.name, (0, 9))
        return generator.integers(low, high, shape, dtype, endpoint=True)

    return draw


def random_inputs(method: Method, size: int | None, seed: int) -> list[Any]:
    """Inputs with every dynamic dimension at `size`. None: at its largest size."""
    draw = random_arrays(method, seed)

    def value(info: IOInfo) -> Any:
        if not info.is_tensor:
            return 0 if info.is_integer else info.fixed
        return draw(info, info.max_shape if size is None else info.shape_at(size))

    return [value(info) for info in method.inputs]


def sizes_to_try(method: Method) -> list[int | None]:
    """The largest size, then small and odd ones: these use other routes and partial tiles."""
    largest = max((info.max_shape[d] for info in method.inputs for d in info.dynamic_dims), default=0)
    smaller = sorted({size for size in (largest // 2 + 1, 7, 3, 1) if size < largest}, reverse=True)
    return [None, *smaller]
