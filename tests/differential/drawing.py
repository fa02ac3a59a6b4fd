"""A program while it is drawn: its values at every live point, and random choices among them."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import torch

from tests.differential.fills import DTYPES, FLOATS, INTEGERS, tensor_of
from tests.differential.kernels import ANY_CONTENTS, SYM_SIZE, WITHOUT_RESULT, kernel
from tests.differential.record import Record, Shape, Source, Step, resolved

SIZES = (1, 1, 2, 2, 3, 3, 4, 5, 6, 7, 8, 9, 13, 16)
NUMBERS = (*FLOATS, *INTEGERS)
MOST_ELEMENTS = 4096
FILLS = ("normal", "normal", "normal", "large", "edges", "wide", "whole", "positive")


class Impossible(Exception):
    """The arguments that were drawn are not valid. Others may be."""


class Drawing:
    """`env` holds each value as a list: one tensor or integer for each live point."""

    def __init__(self, rng: random.Random, fills: Sequence[str]) -> None:
        self.rng, self._fills = rng, fills
        self.record = Record()
        self.env: dict[str, list[Any]] = {}
        self.points = rng.choice([1, 2, 3, 3, 4])
        self._live = [self._live_size() for _ in range(rng.choice([0, 1, 1, 2]))] if self.points > 1 else []

    def _live_size(self) -> tuple[int, ...]:
        """The sizes of a live dimension at all points, the largest first."""
        most = self.rng.choice([2, 3, 5, 8, 9, 17])
        smallest = 0 if self.rng.random() < 0.15 else 1
        return (most, *(self.rng.randint(smallest, most) for _ in range(self.points - 1)))

    # -- values ---------------------------------------------------------------------------------

    def shapes(self, name: str) -> list[Shape]:
        return [tuple(value.shape) for value in self.env[name]]

    def rank(self, name: str) -> int:
        return self.env[name][0].dim()

    def dtype(self, name: str) -> str:
        return str(self.env[name][0].dtype).removeprefix("torch.")

    def sizes(self, name: str, dim: int) -> list[int]:
        return [shape[dim] for shape in self.shapes(name)]

    def least(self, name: str, dim: int) -> int:
        """The size of a dimension at the point where it is smallest."""
        return min(self.sizes(name, dim))

    def fixed(self, name: str, dim: int) -> int:
        """A size that is the same at all points."""
        sizes = set(self.sizes(name, dim))
        if len(sizes) > 1:
            raise Impossible
        return sizes.pop()

    def size(self, name: str, dim: int) -> Any:
        """A size as an argument: a number, or a reference to a SymInt."""
        sizes = set(self.sizes(name, dim))
        if len(sizes) == 1 and self.rng.random() < 0.8:
            return sizes.pop()
        return "$" + self.step(SYM_SIZE, {"self": f"${name}", "dim": dim % self.rank(name)})[0]

    def tensors(self, fits: Callable[[str], bool] = lambda name: True) -> list[str]:
        return [
            name
            for name, at in self.env.items()
            if isinstance(at[0], torch.Tensor) and not self._is_special(name) and fits(name)
        ]

    def _is_special(self, name: str) -> bool:
        """Indices, which would become something else, buffers, which a step may change, and no contents."""
        source = self.record.sources.get(name)
        if source is not None:
            return source.fill.startswith(("range", "unique")) or source.kind == "buffer"
        maker = next(step for step in self.record.steps if name in step.outputs)
        if "output_mask" in maker.args:
            return not maker.args["output_mask"][maker.outputs.index(name)]
        return maker.kernel in ANY_CONTENTS

    # -- drawing tensors ------------------------------------------------------------------------

    def any_dtype(self, among: Sequence[str] = DTYPES) -> str:
        if "float32" in among and self.rng.random() < 0.4:
            return "float32"
        return self.rng.choice(list(among))

    def a_size(self) -> list[int]:
        """A size at all points."""
        if self._live and self.rng.random() < 0.4:
            return list(self.rng.choice(self._live))
        if self.rng.random() < 0.01:
            return [0] * self.points
        return self.fixed_size()

    def fixed_size(self) -> list[int]:
        return [self.rng.choice(SIZES)] * self.points

    def source(
        self, dtype: str, dims: Sequence[Sequence[int]], fill: str | None = None, kind: str | None = None
    ) -> str:
        """A new tensor. `dims` has the sizes of each dimension at all points."""
        shapes = [[sizes[point] for sizes in dims] for point in range(self.points)]
        if any(math.prod(shape) > MOST_ELEMENTS for shape in shapes):
            raise Impossible
        static = all(shape == shapes[0] for shape in shapes)
        kind = kind or ("constant" if static and self.rng.random() < 0.2 else "input")
        if kind != "input" and not static:
            raise Impossible
        fill = fill or self.rng.choice(self._fills)
        source = Source(
            kind, dtype, shapes if kind == "input" else shapes[:1], fill, self.rng.getrandbits(32)
        )
        name = f"x{len(self.record.sources)}"
        self.record.sources[name] = source
        self.env[name] = [tensor_of(source, point) for point in range(self.points)]
        return name

    def tensor(
        self,
        dtypes: Sequence[str] = DTYPES,
        ranks: Sequence[int] = (0, 1, 1, 2, 2, 2, 3, 3, 4),
        fits: Callable[[str], bool] = lambda name: True,
        fill: str | None = None,
    ) -> str:
        """A value that exists, or a new one."""
        known = self.tensors(lambda n: self.dtype(n) in dtypes and self.rank(n) in ranks and fits(n))
        if known and fill is None and self.rng.random() < 0.75:
            return self.rng.choice(known[-3:] if self.rng.random() < 0.6 else known)
        dims = [self.a_size() for _ in range(self.rng.choice(list(ranks)))]
        return self.source(self.any_dtype(dtypes), dims, fill)

    def dims(self, name: str) -> list[list[int]]:
        return [self.sizes(name, dim) for dim in range(self.rank(name))]

    def like(self, name: str, dtype: str | None = None, fill: str | None = None) -> str:
        """A value of the same shape."""
        dtype = dtype or self.dtype(name)
        same = self.tensors(lambda n: self.shapes(n) == self.shapes(name) and self.dtype(n) == dtype)
        if same and fill is None and self.rng.random() < 0.6:
            return self.rng.choice(same)
        return self.source(dtype, self.dims(name), fill)

    def partner(self, name: str, dtypes: Sequence[str] = DTYPES, same: float = 0.7) -> str:
        """A value whose shape broadcasts with this one."""
        dtype = (
            self.dtype(name)
            if self.dtype(name) in dtypes and self.rng.random() < same
            else self.any_dtype(dtypes)
        )
        if self.rng.random() < 0.6:
            return self.like(name, dtype)
        ones = [1] * self.points
        dims = [sizes if self.rng.random() < 0.7 else ones for sizes in self.dims(name)]
        if self.rng.random() < 0.3:
            dims = dims[self.rng.randint(0, len(dims)) :]
        elif self.rng.random() < 0.1:
            dims = [self.a_size(), *dims]
        return self.source(dtype, dims)

    def index(
        self, dims: Sequence[Sequence[int]], below: int, unique: bool = False, dtype: str = "int64"
    ) -> str:
        """A tensor of indices from 0 to `below`, not including it."""
        count = max((math.prod(sizes[p] for sizes in dims) for p in range(self.points)), default=1)
        if below < 1 or (unique and count > below):
            raise Impossible
        return self.source(dtype, dims, f"{'unique' if unique else 'range'} 0 {below}", "input")

    # -- drawing numbers ------------------------------------------------------------------------

    def dim(self, rank: int) -> int:
        return self.rng.randint(-max(rank, 1), max(rank, 1) - 1)

    def some_dims(self, rank: int) -> list[int]:
        chosen = self.rng.sample(range(rank), self.rng.randint(0, rank)) if rank else []
        return [d - rank if self.rng.random() < 0.3 else d for d in chosen]

    def scalar(self, dtype: str) -> Any:
        pick = self.rng.random()
        if dtype == "bool" and pick < 0.5:
            return self.rng.random() < 0.5
        if dtype in FLOATS or pick < 0.1:
            some = [0.0, 1.0, -1.0, 0.5, 2.0, 3.0, math.inf, -math.inf, math.nan, 1e-8, 1e30]
            return self.rng.choice(some) if pick < 0.3 else round(self.rng.gauss(0, 2), 3)
        low = 0 if dtype == "uint8" else -7
        return (
            self.rng.choice([low, -1, 0, 1, 2, 3, 100, 127, 255]) if pick < 0.2 else self.rng.randint(low, 9)
        )

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    # -- steps ----------------------------------------------------------------------------------

    def step(self, name: str, args: dict[str, Any], dtype: str | None = None) -> list[str]:
        """Add a step, if torch accepts its arguments at every point."""
        called = kernel(name)
        made = [self._run(called, args, dtype, point) for point in range(self.points)]
        first = made[0]
        for other in made[1:]:
            if len(other) != len(first) or any(
                _kind(a) != _kind(b) for a, b in zip(first, other, strict=True)
            ):
                raise Impossible
        number = len(self.record.steps)
        outputs = [f"t{number}" if n == 0 else f"t{number}.{n}" for n in range(len(first))]
        if not outputs and name not in WITHOUT_RESULT:
            raise Impossible
        self.record.steps.append(Step(name, args, outputs, dtype))
        for n, output in enumerate(outputs):
            self.env[output] = [values[n] for values in made]
        return outputs

    def _run(self, called: Any, args: dict[str, Any], dtype: str | None, point: int) -> list[Any]:
        def value(name: str) -> Any:
            at = self.env[name][point]
            return at.clone() if isinstance(at, torch.Tensor) else at

        try:
            made = called(resolved(args, value), dtype)
        except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError, ZeroDivisionError):
            raise Impossible from None
        tensors = [result for result in made if isinstance(result, torch.Tensor)]
        if any(result.numel() > MOST_ELEMENTS or result.dtype not in _KNOWN for result in tensors):
            raise Impossible
        return made


_KNOWN = {getattr(torch, name) for name in (*DTYPES, "complex64")}


def _kind(value: Any) -> Any:
    return (value.dtype, value.dim()) if isinstance(value, torch.Tensor) else int
