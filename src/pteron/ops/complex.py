"""Complex tensors. An element is a pair of a real and an imaginary part."""

from __future__ import annotations

from pteron.ir.rule import Dispatch, DType, LiveTensor, copy_dispatch, op, threads


@op("aten.view_as_real_copy.default")
def view_as_real(x: LiveTensor, out: LiveTensor) -> Dispatch:
    """The real and the imaginary part become the last dimension."""
    out.resize((*x.shape, 2))
    return copy_dispatch(x, out)


@op("aten._conj_physical.default")
def conjugate(x: LiveTensor, out: LiveTensor) -> Dispatch:
    """A real number is its own conjugate."""
    out.resize(x.shape)
    if x.dtype is not DType.complex64:
        return copy_dispatch(x, out)
    return Dispatch("conjugate", {"x": x, "y": out}, {"count": x.numel}, threads(x.numel))
