"""Fourier transforms of any length, over any dimensions.

A transform of n = a * b elements is computed in two steps, of a + b products per element. a is the largest
divisor of n that is at most its root.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pteron.compiler.ir.rule import Dispatch, LiveTensor, Scratch, Shape, check, numel, op, threads
from pteron.compiler.ops.shapes import dimension

FORWARD, BACKWARD = -1.0, 1.0
NO_SCALE, BY_ROOT, BY_SIZE = range(3)  # how torch numbers the scales of a transform


@op("aten._fft_r2c.default")
def fft_r2c(
    x: LiveTensor, dim: Sequence[int], normalization: int, onesided: bool, out: LiveTensor
) -> list[Dispatch]:
    """Real numbers to complex ones. If onesided, the last of the dimensions keeps half of its results."""
    *others, last = dims = _dimensions(dim, x)
    kept = x.shape[last] // 2 + 1 if onesided else x.shape[last]
    out.resize((*x.shape[:last], kept, *x.shape[last + 1 :]))
    transform = Transform(FORWARD, _scale(normalization, [x.shape[d] for d in dims]), _space(x, out))
    return transform.along([(last, x.shape[last]), *((d, x.shape[d]) for d in others)], x, out)


@op("aten._fft_c2c.default")
def fft_c2c(
    x: LiveTensor, dim: Sequence[int], normalization: int, forward: bool, out: LiveTensor
) -> list[Dispatch]:
    dims = _dimensions(dim, x)
    out.resize(x.shape)
    scale = _scale(normalization, [x.shape[d] for d in dims])
    transform = Transform(FORWARD if forward else BACKWARD, scale, _space(x, out))
    return transform.along([(d, x.shape[d]) for d in dims], x, out)


@op("aten._fft_c2r.default")
def fft_c2r(
    x: LiveTensor, dim: Sequence[int], normalization: int, last_dim_size: int, out: LiveTensor
) -> list[Dispatch]:
    """The transform back from the result of `fft_r2c`, to `last_dim_size` real elements."""
    *others, last = dims = _dimensions(dim, x)
    check(
        x.shape[last] == last_dim_size // 2 + 1,
        f"{last_dim_size} elements have {last_dim_size // 2 + 1} frequencies, not {x.shape[last]}",
    )
    out.resize((*x.shape[:last], last_dim_size, *x.shape[last + 1 :]))
    transform = Transform(BACKWARD, _scale(normalization, [out.shape[d] for d in dims]), _space(x, out))
    return transform.along([*((d, x.shape[d]) for d in others), (last, last_dim_size)], x, out)


def _dimensions(dim: Sequence[int], x: LiveTensor) -> list[int]:
    dims = [dimension(d, x.rank) for d in dim]
    check(bool(dims) and all(x.shape[d] > 0 for d in dims), "there must be elements to transform")
    return dims


def _scale(normalization: int, sizes: Sequence[int]) -> float:
    check(
        normalization in (NO_SCALE, BY_ROOT, BY_SIZE), f"normalization must be 0, 1 or 2, not {normalization}"
    )
    return math.pow(numel(tuple(sizes)), {NO_SCALE: 0.0, BY_ROOT: -0.5, BY_SIZE: -1.0}[normalization])


def _space(x: LiveTensor, out: LiveTensor) -> int:
    """The bytes of the larger tensor as complex numbers."""
    return max(16, 8 * numel(x.max_shape), 8 * numel(out.max_shape))


@dataclass(frozen=True, slots=True)
class Transform:
    sign: float
    scale: float  # of the whole transform
    space: int

    def along(self, axes: Sequence[tuple[int, int]], x: LiveTensor, out: LiveTensor) -> list[Dispatch]:
        """Transform x over several dimensions, each with its number of elements."""
        between = Scratch("between", self.space)
        dispatches: list[Dispatch] = []
        source: LiveTensor | Scratch = x
        shape = x.shape
        for number, (d, n) in enumerate(axes):
            final = number == len(axes) - 1
            real = source is x and x.dtype.is_float, final and out.dtype.is_float
            target = out if final else between
            dispatches += self._one(
                source, target, shape, d, n, out.shape[d], real, self.scale if final else 1.0
            )
            shape = (*shape[:d], out.shape[d], *shape[d + 1 :])
            source = between
        return dispatches

    def _one(
        self,
        source: LiveTensor | Scratch,
        target: LiveTensor | Scratch,
        shape: Shape,
        d: int,
        n: int,
        kept: int,
        real: tuple[bool, bool],
        scale: float,
    ) -> list[Dispatch]:
        """Transform dimension d, which has n elements. The first `kept` results are stored.

        `real`: whether the source and the target are real.
        """
        check(n > 0, f"dimension {d} has no elements: a transform needs at least one")
        outer, inner = numel(shape[:d]), numel(shape[d + 1 :])
        # Only a run without checks has no elements.
        a = max((divisor for divisor in range(1, math.isqrt(n) + 1) if n % divisor == 0), default=1)
        size = {"inner": inner, "a": a, "b": n // a}
        turns, parts = Scratch("turns", self.space), Scratch("parts", self.space)
        takes, gives = ({"REAL": is_real} for is_real in real)
        return [
            Dispatch("fft_turns", {"y": turns}, {"n": n, "sign": self.sign}, threads(n)),
            Dispatch(
                "fft_first",
                {"x": source, "turns": turns, "parts": parts},
                {"count": outer * n * inner, "held": shape[d], **size},
                threads(outer * n * inner),
                {**takes, "HERMITIAN": real[1]},
            ),
            Dispatch(
                "fft_second",
                {"parts": parts, "turns": turns, "y": target},
                {"count": outer * kept * inner, "kept": kept, "scale": scale, **size},
                threads(outer * kept * inner),
                gives,
            ),
        ]
