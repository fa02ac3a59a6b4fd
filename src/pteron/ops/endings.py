"""Linear layers and convolutions that apply an elementwise function to their results before storing them."""

from __future__ import annotations

from dataclasses import replace

from pteron.ir.rule import (
    Dispatch,
    LiveArguments,
    LiveTensor,
    Route,
    Scratch,
    Shape,
    Work,
    multiplies,
    numel,
    op,
    rows_of,
)
from pteron.ops.conv import packed_convolution
from pteron.ops.elementwise import Elementwise, unary_dispatch
from pteron.ops.matmul import linear_product

# Kernels that call `ending` where they store, if ENDED. They are for software adapters, where it is slow to
# load and store a tensor once more. After other kernels the function is a kernel of its own.
KERNELS = {"matmul_subgroup_quads", "conv_subgroup", "conv_rows", "conv_depthwise"}


def _convolution_work(call: LiveArguments) -> Work:
    return Work(2 * numel(call["weight"].shape[:-1]) * call["out"].numel)


@op("pteron.linear_with_ending", work=multiplies("x"), rows=rows_of("x", mixes=-1))
def linear_with_ending(
    x: LiveTensor, weight: LiveTensor, bias: LiveTensor | None, ending: str, out: LiveTensor
) -> list[Route]:
    """A linear layer. The WGSL expression `ending` is then applied to each result."""
    return _with_ending(linear_product(x, weight, bias, (out,)), out, ending)


@op("pteron.convolution_with_ending", work=_convolution_work)
def convolution_with_ending(
    x: LiveTensor,
    weight: LiveTensor,
    bias: LiveTensor | None,
    stride: Shape,
    padding: Shape,
    dilation: Shape,
    groups: int,
    output_min: float | None,
    output_max: float | None,
    ending: str,
    out: LiveTensor,
) -> list[Route]:
    """A convolution with packed weights. `ending` is then applied to each result."""
    routes = packed_convolution(
        x, weight, bias, stride, padding, dilation, groups, output_min, output_max, out
    )
    return _with_ending(routes, out, ending)


def _with_ending(routes: list[Route], out: LiveTensor, ending: str) -> list[Route]:
    function = Elementwise(ending)
    code = function.wgsl("ending", ["vec4<f32>"], "vec4<f32>", [])
    between = Scratch("before ending", max(16, out.tensor.max_nbytes))
    last = unary_dispatch(function, between, out, out.numel)

    def ended(route: Route) -> Route:
        writers = [dispatch for dispatch in route.dispatches if "y" in dispatch.bindings]
        stores = [dispatch for dispatch in writers if dispatch.bindings["y"] is out]
        if all(dispatch.kernel in KERNELS for dispatch in stores):
            made = [_ended(d, code) if d in stores else d for d in route.dispatches]
        else:
            made = [_redirected(d, between) if d in stores else d for d in route.dispatches] + [last]
        return replace(route, dispatches=made)

    return [ended(route) for route in routes]


def _ended(dispatch: Dispatch, code: str) -> Dispatch:
    return replace(dispatch, defines={**dispatch.defines, "ENDED": True}, code=code)


def _redirected(dispatch: Dispatch, target: Scratch) -> Dispatch:
    return replace(dispatch, bindings={**dispatch.bindings, "y": target})
