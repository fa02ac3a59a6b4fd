"""Linear layers and convolutions that finish their results before storing them.

They apply an elementwise function, or add another tensor. Routes whose kernels cannot do this have one more
kernel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pteron.compiler.ir.rule import (
    Bound,
    Dispatch,
    LiveTensor,
    Route,
    Scratch,
    Shape,
    check,
    describe,
    multiplies,
    op,
    rows_of,
)
from pteron.compiler.ops.conv import packed_convolution, packed_work
from pteron.compiler.ops.elementwise import Elementwise, elementwise_dispatch, unary_dispatch
from pteron.compiler.ops.matmul import linear_product


@op("pteron.linear_with_epilogue", work=multiplies("x"), rows=rows_of("x", mixes=-1))
def linear_with_epilogue(
    x: LiveTensor, weight: LiveTensor, bias: LiveTensor | None, epilogue: str, out: LiveTensor
) -> list[Route]:
    """A linear layer. The WGSL expression `epilogue` is then applied to each result."""
    return _with_epilogue(linear_product(x, weight, bias, (out,)), out, epilogue)


@op("pteron.linear_with_sum", work=multiplies("x"))
def linear_with_sum(
    x: LiveTensor, weight: LiveTensor, bias: LiveTensor | None, added: LiveTensor, out: LiveTensor
) -> list[Route]:
    """A linear layer, and the sum of its result and a tensor with as many elements, in the same order."""
    routes = linear_product(x, weight, bias, (out,))
    check(
        added.numel == out.numel,
        f"what is added has shape {describe(added.shape)}, the result {describe(out.shape)}",
    )
    between = _between(out)
    total = elementwise_dispatch(Elementwise("a + b"), (out, out), out)
    last = replace(total, bindings={"a": between, "b": added, "y": out})
    return _Finish("ADDED", between, last, bindings={"added": added}).of(routes, out)


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
    between = _between(out)
    last = unary_dispatch(function, between, out, out.numel)
    return _Finish("EPILOGUE", between, last, code).of(routes, out)


def _between(out: LiveTensor) -> Scratch:
    return Scratch("before the epilogue", max(16, out.tensor.max_nbytes))


@dataclass(frozen=True, slots=True)
class _Finish:
    """What is left to do with the results of a product: in the kernel, or in one more."""

    flag: str  # the define of kernels that can do it
    between: Scratch  # for the results of other kernels
    last: Dispatch  # finishes them
    code: str = ""
    bindings: Mapping[str, Bound] = field(default_factory=dict)

    def of(self, routes: list[Route], out: LiveTensor) -> list[Route]:
        return [self._of_one(route, out) for route in routes]

    def _of_one(self, route: Route, out: LiveTensor) -> Route:
        stores = [each for each in route.dispatches if each.bindings.get("y") is out]
        if all(self.flag in dispatch.defines for dispatch in stores):
            made = [self._fused(each) if each in stores else each for each in route.dispatches]
        else:
            made = [self._redirected(each) if each in stores else each for each in route.dispatches]
            made.append(self.last)
        return replace(route, dispatches=made)

    def _fused(self, dispatch: Dispatch) -> Dispatch:
        return replace(
            dispatch,
            bindings={**dispatch.bindings, **self.bindings},
            defines={**dispatch.defines, self.flag: True},
            code=self.code,
        )

    def _redirected(self, dispatch: Dispatch) -> Dispatch:
        return replace(dispatch, bindings={**dispatch.bindings, "y": self.between})
