"""Convolutions with one filter per channel: every input is loaded once for all windows that contain it."""

from __future__ import annotations

from collections.abc import Mapping

from pteron.compiler.ir.rule import Define, Dispatch, LiveTensor, Number, Shape, numel, quads, threads
from pteron.compiler.ops.products import DEPTHWISE, GPU_DEPTHWISE, Candidate, KernelKind
from pteron.compiler.ops.window import Window, as_3d

MAX_TAPS = 81  # a kernel with more would take long to compile
MAX_STRIDE = 4
ENOUGH_INVOCATIONS = 1024  # to keep a software adapter busy
MIN_BAND = 4  # rows of an invocation there; each band loads the rows at its edge again
MANY_INVOCATIONS = 1 << 16  # to keep a GPU busy


def depthwise_candidates(
    bindings: Mapping[str, LiveTensor], window: Window, finishing: Mapping[str, Number]
) -> list[Candidate]:
    """The kernel for [1, kernel.., channels] weights, if the window fits it.

    finishing: the parameters for bias and limits.
    """
    x, out = bindings["x"], bindings["y"]
    spatial = len(window.kernel)
    kernel, stride = as_3d(window.kernel, 1)[1:], as_3d(window.stride, 1)[1:]
    if spatial > 2 or any(d > 1 for d in window.dilation):
        return []
    if numel(kernel) > MAX_TAPS or max(stride) > MAX_STRIDE:
        return []
    size, places = as_3d(x.shape[-spatial:], 1)[1:], as_3d(out.shape[-spatial:], 1)[1:]
    padding = as_3d(window.padding, 0)[1:]
    planes = numel(out.shape[:-spatial])
    params: dict[str, Number] = {
        **finishing,
        "planes": planes,
        "channels": out.shape[-spatial - 1],
        "input_rows": size[0],
        "input_columns": size[1],
        "rows": places[0],
        "columns": places[1],
        "row_padding": padding[0],
        "column_padding": padding[1],
    }
    code, columns = _shape_of_code(kernel, stride), planes * quads(places[1])

    def in_bands(kind: KernelKind, enough: int, least: int) -> Candidate:
        band = max(least, -(-places[0] // -(-enough // max(columns, 1))))
        grid = threads(columns * -(-places[0] // band))
        return Candidate(kind, Dispatch("conv_depthwise", bindings, {**params, "band": band}, grid, code))

    return [in_bands(GPU_DEPTHWISE, MANY_INVOCATIONS, 1), in_bands(DEPTHWISE, ENOUGH_INVOCATIONS, MIN_BAND)]


def _shape_of_code(kernel: Shape, stride: Shape) -> dict[str, Define]:
    flight = -(-kernel[0] // stride[0])
    needed = 3 * stride[1] + kernel[1]  # neighbouring inputs for four columns
    return {
        "EPILOGUE": False,
        "WINDOW_ROWS": kernel[0],
        "WINDOW_COLUMNS": kernel[1],
        "ROW_STRIDE": stride[0],
        "COLUMN_STRIDE": stride[1],
        "TAPS": numel(kernel),
        "FLIGHT": flight,
        "OLDER": flight - 1,
        "NEEDED": needed,
        "FETCHED": quads(needed + 3),
    }
