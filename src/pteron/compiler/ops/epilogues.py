"""Linear layers and convolutions that apply an elementwise function to their results before storing them."""

from __future__ import annotations

from dataclasses import replace

from pteron.compiler.ir.rule import (
    Dispatch,
    LiveTensor,
    Route,
    Scratch,
    Shape,
    multiplies,
    op,
    rows_of,
)
from pteron.compiler.ops.conv import packed_convolution, packed_work
from pteron.compiler.ops.elementwise import Elementwise, unary_dispatch
from pteron.compiler.ops.matmul import linear_product


@op("pteron.linear_with_epilogue", work=multiplies("x"), rows=rows_of("x", mixes=-1))
def linear_with_epilogue(
    x: LiveTensor, weight: LiveTensor, bias: LiveTensor | None, epilogue: str, out: LiveTensor
) -> list[Route]:
    """A linear layer. The WGSL expression `epilogue` is then applied to each result."""
    return _with_epilogue(linear_product(x, weight, bias, (out,)), out, epilogue)


@op("pteron.convolution_with_epilogue", work=packed_work)
def convolution_with_epilogue(
    x: LiveTensor,
    weight: LiveTensor,
    bias: LiveTensor | None,
    stride: Shape,
    padding: Shape,
    dilation: Shape,
    groups: int,
    output_min: float | None,
    output_max: float | None,
    epilogue: str,
    out: LiveTensor,
) -> list[Route]:
    """A convolution with packed weights. `epilogue` is then applied to each result."""
    routes = packed_convolution(
        x, weight, bias, stride, padding, dilation, groups, output_min, output_max, out
    )
    return _with_epilogue(routes, out, epilogue)


def _with_epilogue(routes: list[Route], out: LiveTensor, epilogue: str) -> list[Route]:
    function = Elementwise(epilogue)
    code = function.wgsl("epilogue", ["vec4<f32>"], "vec4<f32>", [])
    between = Scratch("before the epilogue", max(16, out.tensor.max_nbytes))
    last = unary_dispatch(function, between, out, out.numel)

    def with_it(route: Route) -> Route:
        writers = [dispatch for dispatch in route.dispatches if "y" in dispatch.bindings]
        stores = [dispatch for dispatch in writers if dispatch.bindings["y"] is out]
        if all("EPILOGUE" in dispatch.defines for dispatch in stores):
            made = [_fused(d, code) if d in stores else d for d in route.dispatches]
        else:
            made = [_redirected(d, between) if d in stores else d for d in route.dispatches] + [last]
        return replace(route, dispatches=made)

    return [with_it(route) for route in routes]


def _fused(dispatch: Dispatch, code: str) -> Dispatch:
    return replace(dispatch, defines={**dispatch.defines, "EPILOGUE": True}, code=code)


def _redirected(dispatch: Dispatch, target: Scratch) -> Dispatch:
    return replace(dispatch, bindings={**dispatch.bindings, "y": target})
