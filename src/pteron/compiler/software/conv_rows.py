"""Convolutions as matrix products whose rows are the positions of all images.

Every row has all inputs under the window at one position. The lanes of the product have different output
channels. So it is fast where there are few positions: there, a product whose lanes have different positions
(unfold.py) leaves most lanes idle. It also computes three spatial dimensions.
"""

from __future__ import annotations

from dataclasses import dataclass

from pteron.compiler.ir.rule import (
    Define,
    Dispatch,
    DType,
    LiveTensor,
    Number,
    Scratch,
    Shape,
    numel,
    quads,
    threads,
)
from pteron.compiler.ops.conv import PackedConvolution
from pteron.compiler.ops.products import Candidate, GemmShape
from pteron.compiler.ops.window import Window, as_3d
from pteron.compiler.software.kinds import LANES, SUBGROUP_POSITIONS, TILE_COST

SPAN = 8  # quads of a row that one invocation unfolds
MAX_NBYTES = 2**27  # of the unfolded images: every WebGPU device can bind this much
HEIGHTS = (8, 32)  # rows of a tile
UNFOLDING = 24  # the time to unfold an element, in products of one output channel


@dataclass(frozen=True, slots=True)
class Positions:
    """The positions of the window in all images, at one live shape."""

    batch: int
    size: Shape
    places: Shape
    window: Window

    @staticmethod
    def of(shape: Shape, window: Window) -> Positions:
        spatial = len(window.kernel)
        size = shape[-spatial:]
        batch = numel(shape[: -spatial - 1])
        return Positions(batch, size, window.output(size), window)

    @property
    def rows(self) -> int:
        return self.batch * numel(self.places)

    @property
    def is_unfolded(self) -> bool:
        """Whether the images are already rows: each has one element per channel."""
        return self.window.is_pointwise and numel(self.size) == 1

    def are_few(self, columns: int) -> bool:
        """Whether rows take less time than a product whose lanes have different positions."""
        if len(self.places) > 2:
            return True  # there is no such product
        unfolding = 0 if self.is_unfolded else UNFOLDING
        return _time_of_rows(self.rows) * (columns + unfolding) < self._time_of_quads() * columns

    def _time_of_quads(self) -> int:
        """Of eight lanes with a quad of positions each."""
        *lines, last = self.places if not self.window.is_pointwise else (numel(self.places),)
        return self.batch * -(-numel(tuple(lines)) * quads(last) // LANES) * 4 * LANES


def _time_of_rows(rows: int) -> int:
    return min(-(-rows // height) * (height + TILE_COST) for height in HEIGHTS)


def row_candidates(problem: PackedConvolution) -> list[Candidate]:
    """The product for float32, if positions are few at the largest shape."""
    window, bindings = problem.window, problem.bindings
    x, weight = bindings["x"], bindings["weight"]
    if problem.groups > 1 or any(bound.dtype is not DType.float32 for bound in bindings.values()):
        return []
    depth, columns = numel(weight.shape[:-1]), weight.shape[-1]
    largest, live = Positions.of(x.max_shape, window), Positions.of(x.shape, window)
    nbytes = 4 * largest.rows * depth
    if depth % 4 or columns % 4 or nbytes > MAX_NBYTES or not largest.are_few(columns):
        return []
    unfolded = Scratch("rows", max(nbytes, 16))
    before = None if largest.is_unfolded else _unfold(x, unfolded, live, depth)
    params: dict[str, Number] = {
        **problem.finishing,
        "batch": 1,
        "first": 0,
        "rows": live.rows,
        "columns": columns,
        "depth": depth,
        "positions": numel(live.places),
    }
    product = {"a": x if before is None else unfolded, "b": weight, "c": bindings["bias"], "y": bindings["y"]}

    def candidate(height: int) -> Candidate:
        grid = GemmShape(live.rows, columns).workgroups(height, 4 * LANES)
        dispatch = Dispatch("conv_rows", product, params, grid, _code(height))
        is_best = -(-live.rows // height) * (height + TILE_COST) == _time_of_rows(live.rows)
        when = live.are_few(columns) and (len(heights) == 1 or is_best)
        return Candidate(SUBGROUP_POSITIONS, dispatch, when, before=before, variant=f"{height}")

    heights = HEIGHTS if largest.rows > HEIGHTS[0] else HEIGHTS[:1]
    return [candidate(height) for height in heights]


def _unfold(x: LiveTensor, unfolded: Scratch, live: Positions, depth: int) -> Dispatch:
    params: dict[str, Number] = {
        "rows": live.rows,
        "channels": x.shape[-len(live.size) - 1],
        "quads": depth // 4,
        "input": as_3d(live.size, 1),
        "output": as_3d(live.places, 1),
        **live.window.params,
    }
    spans = live.rows * -(-depth // (4 * SPAN))
    return Dispatch("unfold_rows", {"x": x, "y": unfolded}, params, threads(spans), {"SPAN": SPAN})


def _code(height: int) -> dict[str, Define]:
    return {
        "TRANSPOSED": False,
        "RAGGED": False,
        "ALONE": False,
        "EPILOGUE": False,
        "ROWS": height,
        "EIGHTS": height // 8,
        "LANES": LANES,
    }
