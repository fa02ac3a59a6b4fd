"""Convolutions over one, two or three spatial dimensions, plain and transposed, with and without a batch.

Every kernel works on three spatial dimensions; a missing dimension has size 1. The float32 kernel computes
tiles of positions and channels. Other dtypes are computed element by element. On a GPU, a convolution with
enough channels runs as a matrix product, whose kernel reads one operand from the image.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pteron.ir.rule import (
    WORKGROUP,
    Bound,
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
from pteron.ops.elementwise import F32_MAX
from pteron.ops.matmul import all_float32
from pteron.ops.products import ANY, GEMM, MIN_TILE_ROWS, Extent, Offer, product_routes
from pteron.ops.workgroups import stores, tile_offers


@dataclass(frozen=True, slots=True)
class Window:
    """The window of a convolution or a pooling: one number for each spatial dimension."""

    kernel: Shape
    stride: Shape
    padding: Shape
    dilation: Shape

    @staticmethod
    def of(kernel: Shape, stride: Shape, padding: Shape, dilation: Shape) -> Window:
        """A window from lists. A list with one number gives the same number to all dimensions."""
        rank = len(kernel)
        window = Window(
            kernel, per_dimension(stride, rank), per_dimension(padding, rank), per_dimension(dilation, rank)
        )
        check(
            all(n >= 1 for n in (*window.kernel, *window.stride, *window.dilation)),
            f"kernel, stride and dilation must be at least 1, not {window}",
        )
        return window

    @property
    def is_pointwise(self) -> bool:
        return {*self.kernel, *self.stride} == {1} and not any(self.padding)

    def output(self, size: Shape) -> Shape:
        """The number of positions of the window in an input of this size."""
        steps = [
            n + 2 * p - d * (k - 1) - 1
            for n, k, p, d in zip(size, self.kernel, self.padding, self.dilation, strict=True)
        ]
        check(
            all(n >= 0 for n in steps),
            f"an input of {describe(size)} is smaller than the window {describe(self.kernel)}, "
            f"dilated by {describe(self.dilation)}, with padding {describe(self.padding)}",
        )
        return tuple(n // s + 1 for n, s in zip(steps, self.stride, strict=True))

    def transposed_output(self, size: Shape, extra: Shape) -> Shape:
        """The input size in which the window has this many positions, plus `extra` elements at the end."""
        return tuple(
            (n - 1) * s - 2 * p + d * (k - 1) + e + 1
            for n, k, s, p, d, e in zip(
                size, self.kernel, self.stride, self.padding, self.dilation, extra, strict=True
            )
        )

    @property
    def params(self) -> dict[str, Shape]:
        return {
            "kernel": as_3d(self.kernel, 1),
            "stride": as_3d(self.stride, 1),
            "padding": as_3d(self.padding, 0),
            "dilation": as_3d(self.dilation, 1),
        }


def per_dimension(values: Sequence[int], rank: int) -> Shape:
    """One number per dimension. A list with one number gives the same number to all dimensions."""
    listed = tuple(values) * (rank if len(values) == 1 else 1)
    check(len(listed) == rank, f"{describe(listed)} does not give one number for each of {rank} dimensions")
    return listed


def as_3d(values: Shape, neutral: int) -> Shape:
    """Three numbers, one for each spatial dimension: `neutral` stands for the missing dimensions."""
    return (neutral,) * (3 - len(values)) + values


def _work(call: LiveArguments) -> Work:
    """Each element of the output is a product with one filter. If transposed: each element of the input."""
    meets = call["x"] if call["transposed"] else call["out"]
    return Work(2 * numel(call["weight"].shape[1:]) * meets.numel)


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
    spatial = weight.rank - 2
    check(1 <= spatial <= 3, f"weight must have 3, 4 or 5 dimensions, not shape {describe(weight.shape)}")
    check(
        x.rank in (spatial + 1, spatial + 2),
        f"x has shape {describe(x.shape)}, but weight {describe(weight.shape)} "
        f"has {spatial} spatial dimensions",
    )
    batch = x.shape[: x.rank - spatial - 1]
    channels, size = x.shape[-spatial - 1], x.shape[-spatial:]
    outs = weight.shape[1] * groups if transposed else weight.shape[0]
    wanted = weight.shape[0] if transposed else weight.shape[1] * groups
    check(
        channels == wanted, f"x has {channels} channels, but weight {describe(weight.shape)} needs {wanted}"
    )
    check(outs % groups == 0, f"{outs} output channels cannot be split into {groups} groups")
    check(bias is None or bias.numel >= outs, f"bias has fewer elements than the {outs} output channels")
    window = Window.of(weight.shape[2:], stride, padding, dilation)
    extra = per_dimension(output_padding, spatial) if output_padding else (0,) * spatial
    places = window.transposed_output(size, extra) if transposed else window.output(size)
    out.resize((*batch, outs, *places))
    if window.is_pointwise:  # treat all positions as one row
        size = places = (numel(size),)
    params: dict[str, Number] = {
        "batch": numel(batch),
        "in_channels": channels,
        "out_channels": outs,
        "groups": groups,
        "low": -F32_MAX if output_min is None else max(output_min, -F32_MAX),
        "high": F32_MAX if output_max is None else min(output_max, F32_MAX),
        "input": as_3d(size, 1),
        "output": as_3d(places, 1),
        **window.params,
    }
    defines: dict[str, int | float | bool | str] = {
        "HAS_BIAS": bias is not None,
        "TRANSPOSED": transposed,
        "CLAMPED": output_min is not None or output_max is not None,
    }
    bindings: dict[str, Bound] = {"x": x, "weight": weight, "bias": bias or weight, "y": out}
    extent = Extent(outs // groups, numel(places), numel(batch) * groups)
    # The choice depends on the largest shape, which never changes. Every tile works for all channel counts.
    most = weight.max_shape[1] if transposed else weight.max_shape[0] // groups
    offers = []
    if not transposed and most >= MIN_TILE_ROWS and x.dtype.is_float:
        ragged = out.dtype.itemsize == 4
        flags = {**defines, **stores(not ragged), "POINTWISE": window.is_pointwise}
        product = Dispatch("conv_group", bindings, params, fold(0), flags)
        fits = None if ragged else numel(places) % 4 == 0
        offers += tile_offers(product, extent, columns_first=True, when=fits)
    if all_float32(x, weight, bias, out):
        tile = 8 if most > 4 else 4 if most > 1 else 1
        grid = extent.workgroups(tile, 4 * WORKGROUP)
        offers.append(Offer(GEMM, Dispatch("conv", bindings, params, grid, {**defines, "CHANNELS": tile})))
    else:
        offers.append(Offer(ANY, Dispatch("conv_any", bindings, params, extent.element_quads(), defines)))
    return product_routes(extent, offers)
