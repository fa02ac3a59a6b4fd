"""Convolutions as matrix products whose second operand is read in whole quads.

The image is first unfolded along its width: for every tap of a row of the window, a copy of the image that is
shifted, strided and padded. So the four inputs under one tap at four neighbouring positions are one quad. An
image that is its own copy, because the window is a single element, is read directly if its rows are quads.
"""

from __future__ import annotations

from dataclasses import dataclass

from pteron.compiler.ir.rule import (
    Bound,
    Define,
    Dispatch,
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
from pteron.compiler.ops.workgroups import stores
from pteron.compiler.software.kinds import LANES, SUBGROUP_GEMM, SUBGROUP_UNFOLDED

# The sums of a tile do not fit in registers. They are loaded and stored once for this many steps in depth.
STEPS = 4
MIN_CHANNELS = 6  # of a group; with fewer, unfolding costs more than it saves
MAX_NBYTES = 2**27  # of the unfolded images: every WebGPU device can bind this much
TILES = (16, 32)  # channels of an invocation
LOADS = 15  # the time of the two loads of a step, in products of one channel


@dataclass(frozen=True, slots=True)
class Unfolding:
    """How images are unfolded, at one live shape. There are two spatial dimensions: rows and columns."""

    planes: int  # batch * channels
    size: Shape
    places: Shape
    window: Window

    @property
    def rows(self) -> int:
        """Rows of an unfolded plane. If the window has a single row, only the rows that it is at."""
        if self.kernel[0] == 1:
            return self.places[0]
        reach = (self.kernel[0] - 1) * self.dilation[0]
        return (self.places[0] - 1) * self.stride[0] + reach + 1

    @property
    def quads(self) -> int:
        return self.planes * self.rows * self.kernel[1] * quads(self.places[1])

    @property
    def kernel(self) -> Shape:
        return as_3d(self.window.kernel, 1)[1:]

    @property
    def stride(self) -> Shape:
        return as_3d(self.window.stride, 1)[1:]

    @property
    def padding(self) -> Shape:
        return as_3d(self.window.padding, 0)[1:]

    @property
    def dilation(self) -> Shape:
        return as_3d(self.window.dilation, 1)[1:]

    @property
    def product_params(self) -> dict[str, Number]:
        return {
            "window_rows": self.kernel[0],
            "window_columns": self.kernel[1],
            "rows": self.rows,
            "row_stride": 1 if self.kernel[0] == 1 else self.stride[0],
            "row_dilation": self.dilation[0],
            "height": self.places[0],
            "width": self.places[1],
        }

    def dispatch(self, x: LiveTensor, unfolded: Scratch) -> Dispatch:
        params: dict[str, Number] = {
            "quads": self.quads,
            "height": self.size[0],
            "width": self.size[1],
            "rows": self.rows,
            "taps": self.kernel[1],
            "across": quads(self.places[1]),
            "row_stride": self.stride[0] if self.kernel[0] == 1 else 1,
            "column_stride": self.stride[1],
            "row_padding": self.padding[0],
            "column_padding": self.padding[1],
            "column_dilation": self.dilation[1],
        }
        return Dispatch("unfold", {"x": x, "y": unfolded}, params, threads(self.quads))


def unfolded_candidates(problem: PackedConvolution) -> list[Candidate]:
    """The product, if the images have at most two dimensions."""
    x, weight, out = (problem.bindings[name] for name in ("x", "weight", "y"))
    window, gemm = problem.window, problem.gemm
    spatial = len(window.kernel)
    if not x.dtype.is_float or spatial > 2 or gemm.rows < MIN_CHANNELS:
        return []
    largest, live = _unfolding(x.max_shape, window), _unfolding(x.shape, window)
    if 16 * largest.quads > MAX_NBYTES:
        return []
    tile = tile_of(gemm.rows)
    params = {
        **live.product_params,
        **problem.finishing,
        "matrices": gemm.matrices,
        "groups": problem.groups,
        "channels": gemm.rows,
        "depth": numel(weight.shape[:-1]),
    }
    flags: dict[str, Define] = {
        "QUAD_WEIGHTS": gemm.rows % 4 == 0,  # groups of channels are whole quads
        "EPILOGUE": False,
        "CHANNELS": tile,
        "QUADS": tile // 4,
        "LANES": LANES,
        "STEPS": STEPS,
    }
    grid = GemmShape(gemm.rows, live.places[0] * quads(live.places[1]), gemm.matrices).workgroups(tile, LANES)
    unfolded = Scratch("unfolded", 16 * max(largest.quads, 1))

    def product(source: Bound, whole: bool) -> Dispatch:
        bindings = {**problem.bindings, "x": source}
        return Dispatch("conv_subgroup", bindings, params, grid, {**flags, **stores(whole)})

    is_whole = live.places[1] % 4 == 0
    ragged = out.dtype.itemsize == 4  # single elements can be stored
    before, fits = live.dispatch(x, unfolded), None if ragged else is_whole
    candidates = [Candidate(SUBGROUP_UNFOLDED, product(unfolded, not ragged), fits, before=before)]
    if window.is_pointwise:
        candidates.append(Candidate(SUBGROUP_GEMM, product(x, True), is_whole))
    return candidates


def _unfolding(shape: Shape, window: Window) -> Unfolding:
    spatial = len(window.kernel)
    size = shape[-spatial:]
    places = window.output(size)
    if window.is_pointwise:  # treat all positions as one row
        size = places = (numel(size),)
    return Unfolding(numel(shape[:-spatial]), as_3d(size, 1)[1:], as_3d(places, 1)[1:], window)


def tile_of(channels: int) -> int:
    """The channels of an invocation: more share each load, but fewer leave less of the last tile empty."""
    return min(TILES, key=lambda tile: -(-channels // tile) * (tile + LOADS))
