"""Copies of elements that lie at strides: permutations, slices and expansions.

Single elements can always be copied. Whole quads are faster where rows stay rows, and blocks of 4 x 4
elements where two dimensions change places.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pteron.compiler.ir.rule import Dispatch, DType, LiveTensor, Number, Route, Shape, numel, quads, threads
from pteron.compiler.ops.shapes import contiguous, merge


def strided(
    x: LiveTensor, out: LiveTensor, strides: Sequence[int], offset: int = 0, viewed: Shape | None = None
) -> Dispatch:
    """out[i..] = x[offset + i . strides]. i runs over the live shape of `out`, or over the shape `viewed`."""
    sizes, (walk,) = merge(out.shape if viewed is None else viewed, strides)
    params: dict[str, Number] = {
        "quads": quads(out.numel),
        "rank": len(sizes),
        "offset": offset,
        "sizes": sizes,
        "strides": walk,
    }
    return Dispatch("strided_copy", {"x": x, "y": out}, params, threads(quads(out.numel)))


def strided_routes(x: LiveTensor, out: LiveTensor, strides: Sequence[int], offset: int = 0) -> list[Route]:
    """The same as `strided`, in quads and in blocks if the live shape allows it."""
    elements = Route("elements", [strided(x, out, strides, offset)])
    if out.dtype is DType.int64:
        return [elements]
    sizes, (walk,) = merge(out.shape, strides)
    copy = StridedCopy(sizes, walk, offset)
    return [
        Route("quads", [copy.quads(x, out)], copy.moves_quads),
        Route("blocks", [copy.blocks(x, out)], copy.moves_blocks),
        elements,
    ]


@dataclass(frozen=True, slots=True)
class StridedCopy:
    """The sizes of a result, after dimensions are merged, and where its elements are in the source."""

    sizes: Shape
    strides: Shape
    offset: int

    @property
    def moves_quads(self) -> bool:
        """Whether every quad of the result is a quad of the source."""
        if not self.sizes:
            return False
        steps = (self.offset, self.sizes[-1], *self.strides[:-1])
        return self.strides[-1] == 1 and all(step % 4 == 0 for step in steps)

    @property
    def moves_blocks(self) -> bool:
        """Whether four quads of the result are four quads of the source, with rows and columns exchanged."""
        if len(self.sizes) < 2 or 1 not in self.strides[:-1]:
            return False
        rest = [step for d, step in enumerate(self.strides) if d != self._down]
        steps = (self.offset, self.sizes[-1], self.sizes[self._down], *rest)
        return all(step % 4 == 0 for step in steps)

    def quads(self, x: LiveTensor, out: LiveTensor) -> Dispatch:
        """One invocation for a few quads of a row, because the search for the first of them is expensive."""
        *lead, last = self.sizes or (0,)
        *steps, _ = self.strides or (0,)
        run = next(n for n in (4, 2, 1) if last % (4 * n) == 0 or n == 1)
        runs = numel(self.sizes) // (4 * run)
        params: dict[str, Number] = {
            "runs": runs,
            "run": run,
            "rank": len(lead) + 1,
            "offset": self.offset // 4,
            "sizes": (*lead, last // (4 * run)),
            "strides": (*(step // 4 for step in steps), run),
        }
        return Dispatch("strided_quads", {"x": x, "y": out}, params, threads(runs))

    def blocks(self, x: LiveTensor, out: LiveTensor) -> Dispatch:
        """One invocation for a block: four quads along the last dimension, one below the other in `_down`."""
        down, targets = self._down, contiguous(self.sizes)
        last = len(self.sizes) - 1
        four = [4 if d in (down, last) else 1 for d in range(len(self.sizes))]
        sizes = tuple(size // n for size, n in zip(self.sizes, four, strict=True))
        params: dict[str, Number] = {
            "blocks": numel(sizes),
            "rank": len(sizes),
            "offset": self.offset,
            "across": self.strides[-1] if self.strides else 0,
            "down": targets[down] if targets else 0,
            "sizes": sizes,
            "strides": tuple(step * n for step, n in zip(self.strides, four, strict=True)),
            "targets": tuple(step * n for step, n in zip(targets, four, strict=True)),
        }
        return Dispatch("strided_blocks", {"x": x, "y": out}, params, threads(numel(sizes)))

    @property
    def _down(self) -> int:
        """The dimension whose neighbours are neighbours in the source."""
        return self.strides.index(1) if 1 in self.strides else 0
