"""Convolutions over one, two or three spatial dimensions, plain and transposed, with and without a batch.

A missing spatial dimension has size 1. On a GPU, a convolution with enough channels is a matrix product whose
kernel reads one operand from the image. The other kernels compute every case.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from pteron.compiler.ir.extensions import more_routes
from pteron.compiler.ir.rule import (
    WORKGROUP,
    Define,
    Dispatch,
    LiveArguments,
    LiveTensor,
    Number,
    Route,
    Shape,
    Work,
    check,
    describe,
    fold,
    numel,
    op,
)
from pteron.compiler.ops import winograd
from pteron.compiler.ops.conv_tiles import TiledConvolution, tiled_candidates
from pteron.compiler.ops.depthwise import depthwise_candidates
from pteron.compiler.ops.matmul import all_float32
from pteron.compiler.ops.products import ANY, GEMM, MIN_TILE_ROWS, Candidate, GemmShape, product_routes
from pteron.compiler.ops.window import Window, as_3d, per_dimension
from pteron.compiler.ops.workgroups import SQUARE_TILES, stores, tile_candidates


def _work(call: LiveArguments) -> Work:
    """Each element of the output is a product with one filter. If transposed: each element of the input."""
    meets = call["x"] if call["transposed"] else call["out"]
    return Work(2 * numel(call["weight"].shape[1:]) * meets.numel)


def packed_work(call: LiveArguments) -> Work:
    weight = call["weight"]
    is_winograd = weight.tensor.layout == winograd.LAYOUT
    window = 9 * weight.shape[0] if is_winograd else numel(weight.shape[:-1])
    return Work(2 * window * call["out"].numel)


@op("aten.convolution.default", work=_work)
def convolution(
    x: LiveTensor,
    weight: LiveTensor,
    bias: LiveTensor | None,
    stride: Shape,
    padding: Shape,
    dilation: Shape,
    transposed: bool,
    output_padding: Shape,
    groups: int,
    out: LiveTensor,
) -> list[Route]:
    return conv_with_clamp(  # type: ignore[no-any-return]
        x, weight, bias, stride, padding, dilation, transposed, output_padding, groups, None, None, out
    )


@op("et_vk.conv_with_clamp.default", work=_work)
def conv_with_clamp(
    x: LiveTensor,
    weight: LiveTensor,
    bias: LiveTensor | None,
    stride: Shape,
    padding: Shape,
    dilation: Shape,
    transposed: bool,
    output_padding: Shape,
    groups: int,
    output_min: float | None,
    output_max: float | None,
    out: LiveTensor,
) -> list[Route]:
    filters = Filters.of(weight, groups, transposed)
    window = Window.of(filters.kernel, stride, padding, dilation)
    return Convolution(x, filters, bias, out, window, output_padding, output_min, output_max).routes()


@op("pteron.packed_convolution", work=packed_work)
def packed_convolution(
    x: LiveTensor,
    weight: LiveTensor,
    bias: LiveTensor | None,
    stride: Shape,
    padding: Shape,
    dilation: Shape,
    groups: int,
    output_min: float | None,
    output_max: float | None,
    out: LiveTensor,
) -> list[Route]:
    """A convolution with the weight [in / groups, kernel.., out], see fusion/packed_convolutions."""
    ins, *kernel, outs = weight.shape
    if weight.tensor.layout == winograd.LAYOUT:
        kernel = [3, 3]
    filters = Filters(weight, tuple(kernel), ins * groups, outs, groups, packed=True)
    window = Window.of(filters.kernel, stride, padding, dilation)
    return Convolution(x, filters, bias, out, window, (), output_min, output_max).routes()


@dataclass(frozen=True, slots=True)
class Filters:
    """The weights of a convolution."""

    weight: LiveTensor
    kernel: Shape
    ins: int  # input channels, of all groups
    outs: int
    groups: int
    transposed: bool = False
    packed: bool = False

    @classmethod
    def of(cls, weight: LiveTensor, groups: int, transposed: bool) -> Filters:
        """The weights as torch stores them: the channels first, then the window."""
        first, second, *kernel = weight.shape
        ins, outs = (first, second * groups) if transposed else (second * groups, first)
        return cls(weight, tuple(kernel), ins, outs, groups, transposed)

    @property
    def shape(self) -> str:
        return describe(self.weight.shape)


@dataclass(frozen=True, slots=True)
class PackedConvolution:
    """A convolution with the weight [in / groups, kernel.., out], for extensions."""

    bindings: Mapping[str, LiveTensor]  # x, weight, bias (or again weight) and y
    window: Window
    groups: int
    gemm: GemmShape  # rows: channels of a group, columns: positions
    finishing: Mapping[str, Number]  # the parameters for bias and limits


@dataclass(frozen=True, slots=True)
class Convolution:
    x: LiveTensor
    filters: Filters
    bias: LiveTensor | None
    out: LiveTensor
    window: Window
    output_padding: Shape
    low: float | None = None
    high: float | None = None
    places: Shape | None = None  # the positions to compute. Default: those that follow from x and the window

    def routes(self) -> list[Route]:
        x, filters, out = self.x, self.filters, self.out
        spatial, outs = len(filters.kernel), filters.outs
        check(1 <= spatial <= 3, f"weight must have 3, 4 or 5 dimensions, not shape {filters.shape}")
        check(
            x.rank in (spatial + 1, spatial + 2),
            f"x has shape {describe(x.shape)}, but weight {filters.shape} has {spatial} spatial dimensions",
        )
        batch = x.shape[: x.rank - spatial - 1]
        channels, size = x.shape[-spatial - 1], x.shape[-spatial:]
        check(
            channels == filters.ins,
            f"x has {channels} channels, but weight {filters.shape} needs {filters.ins}",
        )
        check(
            outs % filters.groups == 0,
            f"{outs} output channels cannot be split into {filters.groups} groups",
        )
        check(
            self.bias is None or self.bias.numel >= outs,
            f"bias has fewer elements than the {outs} output channels",
        )
        places = self._places(size)
        out.resize((*batch, outs, *places))
        if self.window.is_pointwise and places == size:  # treat all positions as one row
            size = places = (numel(size),)
        return self._all_routes(numel(batch), size, places)

    def _places(self, size: Shape) -> Shape:
        if self.places is not None:
            return self.places
        if not self.filters.transposed:
            return self.window.output(size)
        extra = per_dimension(self.output_padding, len(size)) if self.output_padding else (0,) * len(size)
        return self.window.transposed_output(size, extra)

    def _all_routes(self, batch: int, size: Shape, places: Shape) -> list[Route]:
        x, filters, out = self.x, self.filters, self.out
        weight, groups = filters.weight, filters.groups
        limits: dict[str, Number] = {
            "low": -math.inf if self.low is None else self.low,
            "high": math.inf if self.high is None else self.high,
        }
        params: dict[str, Number] = {
            "batch": batch,
            "in_channels": filters.ins,
            "out_channels": filters.outs,
            "groups": groups,
            "input": as_3d(size, 1),
            "output": as_3d(places, 1),
            **limits,
            **self.window.params,
        }
        defines = {
            "HAS_BIAS": self.bias is not None,
            "CLAMPED": self.low is not None or self.high is not None,
        }
        finishing = {**limits, **{name.lower(): int(flag) for name, flag in defines.items()}}
        layout: dict[str, Define] = {**defines, "TRANSPOSED": filters.transposed, "PACKED": filters.packed}
        bindings = {"x": x, "weight": weight, "bias": self.bias or weight, "y": out}
        if weight.tensor.layout == winograd.LAYOUT:
            return winograd.winograd_routes(bindings, self.window, finishing)
        gemm = GemmShape(filters.outs // groups, numel(places), batch * groups)
        is_float32 = all_float32(x, weight, self.bias, out)
        # The choice depends on the largest shape, which never changes. Every tile works for all counts.
        most = weight.max_shape[1] if filters.transposed else filters.outs // groups
        candidates = []
        more = []
        if filters.packed:
            more = more_routes(PackedConvolution(bindings, self.window, groups, gemm, finishing))
        if filters.packed and is_float32 and most >= MIN_TILE_ROWS:
            tiled = TiledConvolution(
                x, weight, bindings["bias"], out, self.window, groups, (filters.ins, filters.outs),
                batch, size, places, finishing,
            )  # fmt: skip
            candidates += tiled_candidates(tiled, numel(out.max_shape))
        elif not filters.transposed and most >= MIN_TILE_ROWS and x.dtype.is_float:
            ragged = out.dtype.itemsize == 4
            flags = {**layout, **stores(not ragged), "POINTWISE": self.window.is_pointwise}
            product = Dispatch("conv_group", bindings, params, fold(0), flags)
            fits = None if ragged else numel(places) % 4 == 0
            candidates += tile_candidates(
                product,
                gemm,
                rows_first=filters.packed,
                columns_first=True,
                when=fits,
                kinds=SQUARE_TILES,
            )
        if filters.packed and is_float32 and filters.ins == filters.outs == groups:
            candidates += depthwise_candidates(bindings, self.window, finishing)
        if is_float32:
            tile = 8 if most > 4 else 4 if most > 1 else 1
            grid = gemm.workgroups(tile, 4 * WORKGROUP)
            candidates.append(
                Candidate(GEMM, Dispatch("conv", bindings, params, grid, {**layout, "CHANNELS": tile}))
            )
        else:
            candidates.append(
                Candidate(ANY, Dispatch("conv_any", bindings, params, gemm.element_quads(), layout))
            )
        return product_routes(gemm, candidates, more)
