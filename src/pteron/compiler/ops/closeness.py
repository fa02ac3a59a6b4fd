"""Whether two tensors are nearly equal."""

from __future__ import annotations

from pteron.compiler.ir.rule import Dispatch, LiveTensor, Number, Unused, check, numel, op
from pteron.compiler.ops.shapes import broadcast, broadcast_walks

LANES = 64  # of the one workgroup


@op("aten.allclose.default", "aten.allclose.Tensor")
def allclose(
    x: LiveTensor,
    other: LiveTensor,
    rtol: float,
    atol: float,
    equal_nan: bool,
    dummy_param: Unused,
    out: LiveTensor,
) -> Dispatch:
    """out = whether |x - other| <= atol + rtol * |other| everywhere. The shapes broadcast."""
    check(x.dtype is other.dtype, f"x is {x.dtype.name} and other is {other.dtype.name}: cast one of them")
    shape = broadcast(x.shape, other.shape)
    out.resize(out.max_shape)  # one element, of any rank
    params: dict[str, Number] = {
        "count": numel(shape),
        "rtol": rtol,
        "atol": atol,
        "equal_nan": int(equal_nan),
        **broadcast_walks(shape, {"a": x, "b": other}),
    }
    return Dispatch("allclose", {"a": x, "b": other, "y": out}, params, (1, 1, 1), {"LANES": LANES})
