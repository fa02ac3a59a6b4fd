"""Convolutions of one, two and three spatial dimensions, plain and transposed, batched and not.

All are one gather over three spatial dimensions: those that are missing are lifted with ones. Float32
goes in tiles of positions and channels; any other dtype element by element. On GPUs, where there are
channels enough, a convolution is a matrix product whose one operand is gathered as it goes.
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
from pteron.ops.products import ANY, GEMM, WORTH_TILES, Extent, Offer, product_routes
from pteron.ops.workgroups import stores, tile_offers


@dataclass(frozen=True, slots=True)
class Window:
    """How a kernel walks over the spatial dimensions."""

    kernel: Shape
    stride: Shape
    padding: Shape
    dilation: Shape

    @staticmethod
    def of(kernel: Shape, stride: Shape, padding: Shape, dilation: Shape) -> Window:
        """From lists that may hold one number for all dimensions."""
        rank = len(kernel)
        window = Window(kernel, spread(stride, rank), spread(padding, rank), spread(dilation, rank))
        check(
            all(n >= 1 for n in (*window.kernel, *window.stride, *window.dilation)), f"{window} is degenerate"
        )
        return window

    @property
    def is_pointwise(self) -> bool:
        return {*self.kernel, *self.stride} == {1} and not any(self.padding)

    def output(self, size: Shape) -> Shape:
        """How many places the window has in an input of this size."""
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
        """The input size that has this many places, and `extra` more elements at its end."""
        return tuple(
            (n - 1) * s - 2 * p + d * (k - 1) + e + 1
            for n, k, s, p, d, e in zip(
                size, self.kernel, self.stride, self.padding, self.dilation, extra, strict=True
            )
        )

    @property
    def params(self) -> dict[str, Shape]:
        return {
            "kernel": lift(self.kernel, 1),
            "stride": lift(self.stride, 1),
            "padding": lift(self.padding, 0),
            "dilation": lift(self.dilation, 1),
        }


def spread(values: Sequence[int], rank: int) -> Shape:
    """One number per dimension, from a list that may hold one for all of them."""
    listed = tuple(values) * (rank if len(values) == 1 else 1)
    check(len(listed) == rank, f"{describe(listed)} does not give one number for each of {rank} dimensions")
    return listed


def lift(values: Shape, neutral: int) -> Shape:
    """A list over fewer spatial dimensions as one over three."""
    return (neutral,) * (3 - len(values)) + values


def _work(call: LiveArguments) -> Work:
    """Each element of the output meets one filter; transposed, each of the input does."""
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
        f"x has shape {describe(x.shape)}, but weight {describe(weight.shape)} has {spatial} spatial ones",
    )
    batch = x.shape[: x.rank - spatial - 1]
    channels, size = x.shape[-spatial - 1], x.shape[-spatial:]
    outs = weight.shape[1] * groups if transposed else weight.shape[0]
    wanted = weight.shape[0] if transposed else weight.shape[1] * groups
    check(
        channels == wanted, f"x has {channels} channels, but weight {describe(weight.shape)} wants {wanted}"
    )
    check(outs % groups == 0, f"{outs} output channels cannot be split into {groups} groups")
    check(bias is None or bias.numel >= outs, f"bias has fewer elements than the {outs} output channels")
    window = Window.of(weight.shape[2:], stride, padding, dilation)
    extra = spread(output_padding, spatial) if output_padding else (0,) * spatial
    places = window.transposed_output(size, extra) if transposed else window.output(size)
    out.resize((*batch, outs, *places))
    if window.is_pointwise:  # the same work on one long row
        size = places = (numel(size),)
    params: dict[str, Number] = {
        "batch": numel(batch),
        "in_channels": channels,
        "out_channels": outs,
        "groups": groups,
        "low": -F32_MAX if output_min is None else max(output_min, -F32_MAX),
        "high": F32_MAX if output_max is None else min(output_max, F32_MAX),
        "input": lift(size, 1),
        "output": lift(places, 1),
        **window.params,
    }
    defines: dict[str, int | float | bool | str] = {
        "HAS_BIAS": bias is not None,
        "TRANSPOSED": transposed,
        "CLAMPED": output_min is not None or output_max is not None,
    }
    bindings: dict[str, Bound] = {"x": x, "weight": weight, "bias": bias or weight, "y": out}
    extent = Extent(outs // groups, numel(places), numel(batch) * groups)
    # By the largest shape, which never changes: every tile is right for any number of channels.
    most = weight.max_shape[1] if transposed else weight.max_shape[0] // groups
    offers = []
    if not transposed and most >= WORTH_TILES and x.dtype.is_float:
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
