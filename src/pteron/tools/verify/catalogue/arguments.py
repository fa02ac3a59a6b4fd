"""Describe the arguments of an operator: their shapes and element types, and how to draw their contents.

    lambda n: [X(n, 7), At(9, n), W(12, 7), 0.5]

`n` is the live size. `X`, `P` and `W` have the element type under test. All others say their own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from pteron.compiler.ir.dtypes import DType
from pteron.compiler.ir.values import Shape
from pteron.compiler.sketch import replaced

Array: TypeAlias = Any  # of numpy. Its own type would make the short references long
Draw: TypeAlias = Callable[[np.random.Generator, Shape], Array]


@dataclass(frozen=True)
class T:
    """A tensor argument."""

    shape: Shape
    dtype: DType | None = None  # None: the element type under test
    fixed: bool = False  # a constant of the program
    draw: Draw | None = None  # None: what suits the element type
    layout: str = ""  # of a constant


@dataclass(frozen=True)
class Position:
    """An integer that a call gives."""

    value: int = 0


LEAVES = (T, Position)


def X(*shape: int, draw: Draw | None = None) -> T:
    return T(shape, draw=draw)


def P(*shape: int) -> T:
    """Positive numbers of the type under test."""
    return T(shape, draw=positive)


def W(*shape: int) -> T:
    """A weight of the type under test."""
    return T(shape, fixed=True)


def F(*shape: int, draw: Draw | None = None) -> T:
    return T(shape, DType.float32, draw=draw)


def B(*shape: int, draw: Draw | None = None) -> T:
    return T(shape, DType.bool, draw=draw)


def I(*shape: int, draw: Draw | None = None) -> T:  # noqa: E743
    return T(shape, DType.int32, draw=draw)


def Q(*shape: int) -> T:
    return T(shape, DType.int8, draw=whole(-128, 128))


def At(size: int, *shape: int) -> T:
    """Indices into a dimension of this size."""
    return I(*shape, draw=whole(0, size))


def C(*shape: int, dtype: DType = DType.float32, draw: Draw | None = None) -> T:
    """A constant with its own type. Whole numbers are any bits, if `draw` does not say otherwise."""
    return T(shape, dtype, True, draw or (None if dtype.is_float else any_bits(dtype)))


def S(*shape: int) -> T:
    """Constant scales."""
    return C(*shape, draw=lambda random, shape: random.uniform(0.05, 0.2, shape))


def N(*shape: int) -> T:
    """A constant of nibbles, two in a byte."""
    return C(*shape, dtype=DType.uint8)


# -- draws -------------------------------------------------------------------------------------------


def positive(random: np.random.Generator, shape: Shape) -> Array:
    return random.uniform(0.5, 2, shape)


def whole(low: int, high: int) -> Draw:
    """Integers from `low` up to and without `high`."""
    return lambda random, shape: random.integers(low, high, shape)


def any_bits(dtype: DType) -> Draw:
    limits = np.iinfo(dtype.label)
    return lambda random, shape: random.integers(limits.min, limits.max, shape, dtype.label, endpoint=True)


def large(random: np.random.Generator, shape: Shape) -> Array:
    """Integers of all lengths up to 64 bits."""
    return random.integers(-(2**63), 2**63 - 1, shape) >> random.integers(0, 62, shape)


def exactly(array: Array) -> Draw:
    """Not random."""
    return lambda random, shape: array


class Drawing:
    """Draws the contents of arguments. The constants are the same at every live size."""

    def __init__(self, dtype: DType) -> None:
        self.dtype = dtype
        self._inputs = np.random.default_rng(1)
        self._constants = np.random.default_rng(2)

    def __call__(self, leaf: T) -> Array:
        random = self._constants if leaf.fixed else self._inputs
        dtype = leaf.dtype or self.dtype
        drawn = leaf.draw(random, leaf.shape) if leaf.draw else _suitable(random, leaf.shape, dtype)
        return np.asarray(drawn).astype("float32" if dtype is DType.bfloat16 else dtype.label)

    def all(self, args: Any) -> Any:
        """The arguments with an array for every tensor."""
        return replaced(args, (T,), self)


def _suitable(random: np.random.Generator, shape: Shape, dtype: DType) -> Array:
    if dtype is DType.complex64:
        return random.standard_normal(shape) + 1j * random.standard_normal(shape)
    if dtype.is_float:
        return random.standard_normal(shape)
    if dtype is DType.int64:
        return large(random, shape)
    low, high = {DType.bool: (0, 2), DType.uint8: (0, 100)}.get(dtype, (-99, 100))
    return random.integers(low, high, shape)
