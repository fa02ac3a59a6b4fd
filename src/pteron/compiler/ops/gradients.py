"""Gradients of convolutions and of maximum pooling, for training."""

from __future__ import annotations

from collections.abc import Sequence

from pteron.compiler.ir.integer_rules import indexes
from pteron.compiler.ir.rule import (
    Dispatch,
    LiveArguments,
    LiveTensor,
    Number,
    Route,
    Shape,
    Work,
    check,
    describe,
    numel,
    op,
    quads,
    threads,
)
from pteron.compiler.ops.conv import Convolution, Filters
from pteron.compiler.ops.pool import pooling_window
from pteron.compiler.ops.reduce import reduce, total
from pteron.compiler.ops.window import Window, as_3d


def _work(call: LiveArguments) -> Work:
    """The gradient of x and the gradient of the weight each need as many products as the convolution."""
    meets = call["x"] if call["transposed"] else call["grad"]
    return Work(2 * sum(call["output_mask"][:2]) * numel(call["weight"].shape[1:]) * meets.numel)


@op("aten.convolution_backward.default", work=_work)
def convolution_backward(
    grad: LiveTensor,
    x: LiveTensor,
    weight: LiveTensor,
    bias_sizes: Shape | None,
    stride: Shape,
    padding: Shape,
    dilation: Shape,
    transposed: bool,
    output_padding: Shape,
    groups: int,
    output_mask: Sequence[bool],
    outs: Sequence[LiveTensor],
) -> list[Dispatch]:
    """The gradients of x, of the weight and of the bias; `output_mask` says which are wanted."""
    spatial = weight.rank - 2
    check(
        grad.rank == x.rank == spatial + 2,
        f"grad {describe(grad.shape)} and x {describe(x.shape)} must have a batch, channels "
        f"and the {spatial} spatial dimensions of weight {describe(weight.shape)}",
    )
    window = Window.of(weight.shape[2:], stride, padding, dilation)
    dispatches: list[Dispatch] = []
    for wanted, out, like in zip(output_mask, outs, (x.shape, weight.shape, grad.shape[1:2]), strict=True):
        out.resize(like if wanted else tuple(0 for _ in out.max_shape))
    if output_mask[0]:
        # The gradient of a convolution is a transposed convolution, and the other way round.
        filters = Filters.of(weight, groups, not transposed)
        back = Convolution(grad, filters, None, outs[0], window, (), places=x.shape[2:])
        dispatches += _general_route(back.routes())
    if output_mask[1]:
        # In a transposed convolution, x has the window positions, and grad is the image under the windows.
        places, image = (x, grad) if transposed else (grad, x)
        dispatches.append(_weight_gradient(places, image, window, groups, outs[1]))
    if output_mask[2]:
        dims = [d for d in range(grad.rank) if d != 1]
        dispatches += _general_route(reduce(grad, outs[2], dims, False, total(grad, outs[2])))
    return dispatches


def _general_route(routes: list[Route]) -> list[Dispatch]:
    """The last route: it works on every device and for every shape."""
    return routes[-1].dispatches


def _weight_gradient(
    places: LiveTensor, image: LiveTensor, window: Window, groups: int, out: LiveTensor
) -> Dispatch:
    """out[o, c, k] = the sum of places[b, o, at] * image[b, c, at * stride - padding + k * dilation]."""
    params: dict[str, Number] = {
        "quads": quads(out.numel),
        "batch": image.shape[0],
        "outs": places.shape[1],
        "channels": image.shape[1],
        "groups": groups,
        "input": as_3d(image.shape[2:], 1),
        "output": as_3d(places.shape[2:], 1),
        **window.params,
    }
    bindings = {"places": places, "image": image, "y": out}
    return Dispatch("conv_weight_grad", bindings, params, threads(quads(out.numel)))


@op("aten.max_pool2d_with_indices_backward.default", integers=indexes("indices"))
def max_pool2d_backward(
    grad: LiveTensor,
    x: LiveTensor,
    kernel_size: Shape,
    stride: Shape,
    padding: Shape,
    dilation: Shape,
    ceil_mode: bool,
    indices: LiveTensor,
    out: LiveTensor,
) -> Dispatch:
    """The gradient of an element of x is the sum over all windows whose maximum it is."""
    check(
        x.rank in (3, 4) and grad.shape == indices.shape,
        f"grad {describe(grad.shape)} and indices {describe(indices.shape)} must have the same shape, "
        f"and x {describe(x.shape)} must have 3 or 4 dimensions",
    )
    window = pooling_window(kernel_size, stride, padding, dilation, 2)
    out.resize(x.shape)
    params: dict[str, Number] = {
        "quads": quads(x.numel),
        "input": as_3d(x.shape[-2:], 1),
        "output": as_3d(grad.shape[-2:], 1),
        **window.params,
    }
    bindings = {"grad": grad, "indices": indices, "y": out}
    return Dispatch("max_pool_grad", bindings, params, threads(quads(x.numel)))
