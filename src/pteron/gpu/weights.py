"""Constants on the GPU: each piece of the file is uploaded once, however many values name it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np

from pteron.errors import FormatError, UnsupportedError
from pteron.gpu.wgpu.device import Device
from pteron.ir.values import Constant, Joined, Tensor, numel
from pteron.plan.memory import aligned

_Array: TypeAlias = np.ndarray[Any, Any]


class Weights:
    """The constants of a program, shared by its methods. Immutable once uploaded."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.nbytes = 0
        self._buffers: dict[tuple[Any, ...], Any] = {}

    def buffer(self, tensor: Tensor) -> Any:
        key = _identity(tensor)
        if key not in self._buffers:
            nbytes = aligned(tensor.max_nbytes)
            buffer = self.device.storage(nbytes, f"constant {tensor.name}")
            upload_constant(self.device, tensor, buffer)
            self._buffers[key] = buffer
            self.nbytes += nbytes
        return self._buffers[key]

    def close(self) -> None:
        for buffer in self._buffers.values():
            self.device.free(buffer)
        self._buffers.clear()


def _identity(tensor: Tensor) -> tuple[Any, ...]:
    """What two constants have in common that are the same: where their bytes lie, and how they are read."""
    constant = tensor.constant
    if isinstance(constant, Joined):
        return (constant.axis, *map(_identity, constant.parts))
    assert constant is not None
    data = constant.data
    address = np.frombuffer(data, np.uint8).ctypes.data if len(data) else 0
    return (address, len(data), constant.host_type, constant.dim_order, tensor.dtype)


def upload_constant(device: Device, tensor: Tensor, buffer: Any) -> None:
    """The constant's bytes, straight from the file wherever they lie there as they should on the GPU."""
    offset = 0
    for piece in _pieces(tensor):
        if piece.nbytes:
            device.write(buffer, offset, piece)
        offset += piece.nbytes


def _pieces(tensor: Tensor) -> Iterator[_Array]:
    """A constant as it lies on the GPU, in pieces that follow each other."""
    joined = tensor.constant
    if not isinstance(joined, Joined):
        yield _row_major(tensor)
    elif joined.axis == 0:
        for part in joined.parts:
            yield from _pieces(part)
    else:
        yield np.concatenate([_row_major(part) for part in joined.parts], joined.axis)


def _row_major(tensor: Tensor) -> _Array:
    """A constant of the file, its dimensions in the order of its shape, its elements as on the GPU."""
    constant = tensor.constant
    assert isinstance(constant, Constant)
    shape, host = tensor.max_shape, np.dtype(constant.host_type)
    order = constant.dim_order or tuple(range(len(shape)))
    wanted = numel(shape) * host.itemsize
    if len(constant.data) < wanted:
        raise FormatError(f"constant {tensor} has {len(constant.data)} bytes, but its shape takes {wanted}")
    stored = np.frombuffer(constant.data[:wanted], host) if wanted else np.empty(0, host)
    array = stored.reshape([shape[d] for d in order]).transpose(np.argsort(order))
    narrow = array.astype(tensor.dtype.label, order="C", copy=False)
    exact = host.name == tensor.dtype.label or tensor.dtype.is_float
    if not exact and not np.array_equal(narrow, array):
        raise UnsupportedError(f"constant {tensor.name} holds integers beyond 32 bits, which WebGPU has not")
    return narrow
