"""Random inputs for a method, and live shapes that are worth a try."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from pteron.api.method import Method
from pteron.api.method_info import IOInfo
from pteron.compiler.ir.values import Shape
from pteron.errors import InputError
from pteron.tools.inspect.inspect import sample_ranges

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
        return draw(info, info.largest_shape if size is None else info.shape_at(size))

    return [value(info) for info in method.inputs]


def sizes_to_try(method: Method) -> list[int | None]:
    """The largest size, then small and odd ones: these use other routes and partial tiles."""
    largest = max((info.max_shape[d] for info in method.inputs for d in info.dynamic_dims), default=0)
    seen = [_shapes(method, None)]
    sizes: list[int | None] = [None]
    for size in (largest // 2 + 1, 7, 3, 1):
        if size < largest and _shapes(method, size) not in seen:
            seen.append(_shapes(method, size))
            sizes.append(size)
    return sizes


def _shapes(method: Method, size: int | None) -> list[Shape]:
    return [info.largest_shape if size is None else info.shape_at(size) for info in method.inputs]


def accepted_inputs(method: Method, seed: int, refused: list[str]) -> Iterator[list[Any]]:
    """Random inputs at the live shapes that the program accepts. `refused` gets the errors of others."""
    for size in sizes_to_try(method):
        given = random_inputs(method, size, seed)
        try:
            method.execute(given)
        except InputError as error:
            if size is None:
                raise
            refused.append(f"size {size}: {error}")
            continue
        yield given


def why_no_more_shapes(method: Method, tried: int, refused: Sequence[str]) -> tuple[str, ...]:
    """A note if other live shapes were refused, if none is known, or if they are a guess."""
    infos = [info for info in method.inputs if info.is_tensor]
    shapes = f"{method.name} at {tried} live shape{'s' * (tried > 1)}"
    if refused:
        return (f"{shapes}: it refuses others ({refused[0]})",)
    guessed, dynamic = (any(getattr(info, name) for info in infos) for name in ("guessed", "dynamic_dims"))
    if guessed and dynamic:
        return (f"{shapes}: which sizes vary is a guess, because the file does not say it",)
    if guessed:
        return (f"{shapes}: the file says that sizes vary, but not which, and none was found",)
    return (f"{shapes}: no size may vary",) if infos and not dynamic else ()
