"""Average and maximum pooling over one, two and three spatial dimensions, with a window or adaptive."""

from __future__ import annotations

from collections.abc import Sequence

from pteron.compiler.ir.rule import (
    Bound,
    Dispatch,
    DType,
    LiveTensor,
    Number,
    Shape,
    check,
    describe,
    op,
    quads,
    threads,
)
from pteron.compiler.ops.window import Window, as_3d, per_dimension

# The bits of the initial value of a maximum: the smallest value of the type that the kernel compares.
LOWEST = {
    DType.float32: 0xFF800000,
    DType.float16: 0xFF800000,  # compared as float32
    DType.bfloat16: 0xFF800000,
    DType.int32: 0x80000000,
    DType.int8: 2**32 - 128,
    DType.uint8: 0,
    DType.bool: 0,
}

NO_WINDOW = Window((1,), (1,), (0,), (1,))  # for kernels that do not read the window


def pooling_window(kernel: Shape, stride: Shape, padding: Shape, dilation: Shape, rank: int) -> Window:
    kernel = per_dimension(kernel, rank)
    window = Window.of(kernel, stride or kernel, padding, dilation)
    check(
        all(
            2 * p <= d * (k - 1) + 1 for k, p, d in zip(kernel, window.padding, window.dilation, strict=True)
        ),
        f"padding {describe(window.padding)} is more than half of the window {describe(kernel)}",
    )
    return window


def pooled_size(window: Window, size: Shape, ceil_mode: bool) -> Shape:
    """The number of windows. With `ceil_mode`, the last window must begin before the padding at the end."""
    if not ceil_mode:
        return window.output(size)
    places = []
    for n, k, s, p, d in zip(
        size, window.kernel, window.stride, window.padding, window.dilation, strict=True
    ):
        count = -(-(n + 2 * p - d * (k - 1) - 1) // s) + 1
        count -= (count - 1) * s >= n + p
        check(count > 0, f"an input of {n} is smaller than a window of {k}, dilated by {d}, with padding {p}")
        places.append(count)
    return tuple(places)


def pool_params(
    x: LiveTensor, out: LiveTensor, rank: int, window: Window, divisor: int = 0
) -> dict[str, Number]:
    return {
        "quads": quads(out.numel),
        "divisor": divisor,
        "lowest": LOWEST[x.dtype],
        "input": as_3d(x.shape[-rank:], 1),
        "output": as_3d(out.shape[-rank:], 1),
        **window.params,
    }


def check_spatial(x: LiveTensor, rank: int) -> Shape:
    check(
        x.rank > rank,
        f"x must have {rank} spatial dimensions after its channels, not shape {describe(x.shape)}",
    )
    return x.shape[-rank:]


# -- averages -------------------------------------------------------------------------------------


def average(
    x: LiveTensor,
    out: LiveTensor,
    rank: int,
    window: Window,
    ceil_mode: bool,
    count_padding: bool,
    divisor: int,
) -> Dispatch:
    out.resize((*x.shape[:-rank], *pooled_size(window, check_spatial(x, rank), ceil_mode)))
    params = pool_params(x, out, rank, window, divisor)
    defines = {"ADAPTIVE": False, "COUNT_PADDING": count_padding}
    return Dispatch("avg_pool", {"x": x, "y": out}, params, threads(quads(out.numel)), defines)


@op("aten.avg_pool1d.default")
def avg_pool1d(
    x: LiveTensor,
    kernel_size: Shape,
    stride: Shape,
    padding: Shape,
    ceil_mode: bool,
    count_include_pad: bool,
    out: LiveTensor,
) -> Dispatch:
    window = pooling_window(kernel_size, stride, padding, (1,), 1)
    return average(x, out, 1, window, ceil_mode, count_include_pad, 0)


def _avg_pool(rank: int) -> None:
    @op(f"aten.avg_pool{rank}d.default")
    def rule(
        x: LiveTensor,
        kernel_size: Shape,
        stride: Shape,
        padding: Shape,
        ceil_mode: bool,
        count_include_pad: bool,
        divisor_override: int | None,
        out: LiveTensor,
    ) -> Dispatch:
        check(divisor_override != 0, "divisor_override must not be 0")
        window = pooling_window(kernel_size, stride, padding, (1,), rank)
        return average(x, out, rank, window, ceil_mode, count_include_pad, divisor_override or 0)


def _adaptive_avg_pool(name: str, rank: int) -> None:
    @op(name)
    def rule(x: LiveTensor, output_size: Shape, out: LiveTensor) -> Dispatch:
        return adaptive(x, output_size, rank, [out], "avg_pool", {"x": x, "y": out}, {"COUNT_PADDING": False})


def adaptive(
    x: LiveTensor,
    output_size: Shape,
    rank: int,
    outs: Sequence[LiveTensor],
    kernel: str,
    bindings: dict[str, Bound],
    defines: dict[str, bool],
) -> Dispatch:
    """Pool into a given number of windows. Together the windows cover the input."""
    size = check_spatial(x, rank)
    check(all(size), f"a live input of {describe(size)} has nothing to pool")
    for out in outs:
        out.resize((*x.shape[:-rank], *per_dimension(output_size, rank)))
    params = pool_params(x, outs[0], rank, NO_WINDOW)
    return Dispatch(kernel, bindings, params, threads(quads(outs[0].numel)), {**defines, "ADAPTIVE": True})


_avg_pool(2)
_avg_pool(3)
_adaptive_avg_pool("aten.adaptive_avg_pool1d.default", 1)
_adaptive_avg_pool("aten._adaptive_avg_pool2d.default", 2)
_adaptive_avg_pool("aten.adaptive_avg_pool2d.default", 2)
_adaptive_avg_pool("aten._adaptive_avg_pool3d.default", 3)


# -- maxima ---------------------------------------------------------------------------------------


def maximum(
    x: LiveTensor,
    rank: int,
    kernel_size: Shape,
    stride: Shape,
    padding: Shape,
    dilation: Shape,
    ceil_mode: bool,
    outs: Sequence[LiveTensor],
) -> Dispatch:
    """The largest element of each window, and its index if there is a second output."""
    window = pooling_window(kernel_size, stride, padding, dilation, rank)
    places = pooled_size(window, check_spatial(x, rank), ceil_mode)
    for out in outs:
        out.resize((*x.shape[:-rank], *places))
    params = pool_params(x, outs[0], rank, window)
    kernel = "max_pool" if len(outs) == 1 else "max_pool_indices"
    bindings = {"x": x, **dict(zip(("y", "indices"), outs, strict=False))}
    return Dispatch(kernel, bindings, params, threads(quads(outs[0].numel)), {"ADAPTIVE": False})


def _max_pool(rank: int) -> None:
    @op(f"aten.max_pool{rank}d.default")
    def values(
        x: LiveTensor,
        kernel_size: Shape,
        stride: Shape,
        padding: Shape,
        dilation: Shape,
        ceil_mode: bool,
        out: LiveTensor,
    ) -> Dispatch:
        return maximum(x, rank, kernel_size, stride, padding, dilation, ceil_mode, [out])

    @op(f"aten.max_pool{rank}d_with_indices.default")
    def with_indices(
        x: LiveTensor,
        kernel_size: Shape,
        stride: Shape,
        padding: Shape,
        dilation: Shape,
        ceil_mode: bool,
        outs: Sequence[LiveTensor],
    ) -> Dispatch:
        return maximum(x, rank, kernel_size, stride, padding, dilation, ceil_mode, outs)


def _adaptive_max_pool(rank: int) -> None:
    @op(f"aten.adaptive_max_pool{rank}d.default")
    def rule(x: LiveTensor, output_size: Shape, outs: Sequence[LiveTensor]) -> Dispatch:
        bindings: dict[str, Bound] = {"x": x, "y": outs[0], "indices": outs[1]}
        return adaptive(x, output_size, rank, outs, "max_pool_indices", bindings, {})


for _rank in (1, 2, 3):
    _max_pool(_rank)
    _adaptive_max_pool(_rank)
