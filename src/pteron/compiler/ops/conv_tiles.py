"""Convolutions of float32 as matrix products by tiles, for GPUs.

The window is a part of the shader text, so the loops have constant lengths. Where the image is small, several
workgroups divide the depth of a tile, so that a GPU has enough of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pteron.compiler.ir.rule import (
    Bound,
    Define,
    Dispatch,
    Number,
    Scratch,
    Shape,
    numel,
    quads,
    threads,
)
from pteron.compiler.ops import products
from pteron.compiler.ops.products import LARGE_TILE, SMALL_TILE, SPLIT_TILE, Candidate, GemmShape
from pteron.compiler.ops.window import Window, as_3d

STEP = 16  # elements of the depth in a slice
ENOUGH_TILES = 384  # workgroups that keep a GPU busy
MIN_SHARE = 4  # slices of a split
MIXED_WASTE = 1.25  # slices of one tap may be this much longer than the depth


@dataclass(frozen=True, slots=True)
class Tile:
    """The channels and positions of a workgroup. A lane has 4 * height channels at 4 positions."""

    rows: int
    columns: int
    height: int

    @property
    def defines(self) -> dict[str, Define]:
        lanes = self.rows * self.columns // (16 * self.height)
        return {
            "ROWS": self.rows,
            "COLUMNS": self.columns,
            "HEIGHT": self.height,
            "STEP": STEP,
            "LOADS": STEP * self.columns // lanes,
            "WEIGHT_LOADS": STEP * self.rows // (4 * lanes),
        }


SMALL, LARGE = Tile(32, 32, 1), Tile(64, 64, 2)


@dataclass(frozen=True, slots=True)
class TiledConvolution:
    """A convolution at its live shape, as a product: the filters of a group times the positions."""

    x: Bound
    weight: Bound  # [inputs of a group, window.., channels]
    bias: Bound  # or again the weight
    out: Bound
    window: Window
    groups: int
    channels: tuple[int, int]  # in and out
    batch: int
    size: Shape
    places: Shape
    finishing: Mapping[str, Number]  # for bias and limits

    @property
    def gemm(self) -> GemmShape:
        return GemmShape(self.channels[1] // self.groups, self.batch * numel(self.places), self.groups)

    @property
    def inputs(self) -> int:
        return self.channels[0] // self.groups

    @property
    def is_mixed(self) -> bool:
        """Whether a slice has elements of several taps: slices of one tap would be mostly empty."""
        return self.window.taps > 1 and -(-self.inputs // STEP) * STEP > MIXED_WASTE * self.inputs

    @property
    def slices(self) -> int:
        if self.is_mixed:
            return -(-self.inputs * self.window.taps // STEP)
        return self.window.taps * -(-self.inputs // STEP)

    def splits(self, elements: int) -> int:
        """How many workgroups divide the depth of a small tile, if the output has so many elements."""
        columns = elements // max(self.channels[1], 1)
        tiles = GemmShape(self.gemm.rows, columns, self.groups).blocks(SMALL.rows, SMALL.columns)
        return max(1, min(self.slices // MIN_SHARE, ENOUGH_TILES // max(tiles, 1)))

    @property
    def stride(self) -> int:
        """The elements of the sums of a split, in whole quads."""
        return 4 * quads(self.gemm.elements)

    def tile(self, tile: Tile, out: Bound | None = None, splits: int = 1) -> Dispatch:
        """The product. `out`: for the sums of all splits, one after another."""
        share = -(-self.slices // splits)
        params: dict[str, Number] = {
            **self.finishing,
            "batch": self.batch,
            "in_channels": self.channels[0],
            "out_channels": self.channels[1],
            "groups": self.groups,
            "input": as_3d(self.size, 1),
            "output": as_3d(self.places, 1),
            "padding": as_3d(self.window.padding, 0),
            "splits": splits,
            "share": share,
            "stride": self.stride,
        }
        bindings = {"x": self.x, "weight": self.weight, "y": out or self.out}
        flags: dict[str, Define] = {"SPLIT": out is not None}
        if out is None:
            bindings["bias"], flags["EPILOGUE"] = self.bias, False
        grid = replace(self.gemm, matrices=self.groups * splits).workgroups(tile.rows, tile.columns)
        return Dispatch("conv_tile", bindings, params, grid, {**self._code, **tile.defines, **flags})

    @property
    def _code(self) -> dict[str, Define]:
        is_quad = self.gemm.rows % 4 == 0
        depth = self.inputs * self.window.taps if self.is_mixed else self.inputs
        return {
            **self.window.defines,
            "MIXED": self.is_mixed,
            "WHOLE": depth % STEP == 0 and not self.is_mixed,
            "QUAD_WEIGHTS": is_quad,
            "WEIGHTS": "vec4<f32>" if is_quad else "f32",
        }

    def merge(self, parts: Bound, splits: int) -> Dispatch:
        """Add the sums of all splits."""
        elements = self.gemm.elements
        params: dict[str, Number] = {
            **self.finishing,
            "splits": splits,
            "quads": quads(elements),
            "channels": self.channels[1],
            "positions": max(numel(self.places), 1),
        }
        bindings = {"parts": parts, "bias": self.bias, "y": self.out}
        return Dispatch("conv_merge", bindings, params, threads(quads(elements)), {"EPILOGUE": False})


def tiled_candidates(problem: TiledConvolution, largest: int) -> list[Candidate]:
    """The kernels that some live shape uses. largest: the elements of the output at its largest shape."""
    candidates = [Candidate(SMALL_TILE, problem.tile(SMALL))]
    if problem.gemm.rows > SMALL.rows and largest >= products.MANY_ELEMENTS:
        candidates.append(Candidate(LARGE_TILE, problem.tile(LARGE)))
    if problem.slices >= 2 * MIN_SHARE:
        splits, least = problem.splits(problem.gemm.elements), problem.splits(largest)
        parts = Scratch("parts", 4 * parts_numel(problem, largest))
        product, merge = problem.tile(SMALL, parts, splits), problem.merge(parts, splits)
        fits = None if least > 1 else splits > 1  # fewer elements are split into more parts
        candidates.append(Candidate(SPLIT_TILE, merge, fits, before=product))
    return candidates


def parts_numel(problem: TiledConvolution, largest: int) -> int:
    """The most elements that the sums of all splits have, at every live shape."""
    most = max(problem.slices // MIN_SHARE, 1)
    split = min(most * largest, ENOUGH_TILES * SMALL.rows * SMALL.columns)  # only fewer tiles are split
    return max(split, largest) + 4 * most
