"""Constants on the GPU: each piece of the file is uploaded once, however many values name it."""

from __future__ import annotations

from typing import Any

import numpy as np

from pteron.errors import UnsupportedError
from pteron.gpu.device import Device
from pteron.graph.memory import aligned
from pteron.graph.values import Tensor


class Weights:
    """The constants of a program, shared by its methods. Immutable once uploaded."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.nbytes = 0
        self._buffers: dict[tuple[Any, ...], Any] = {}

    def buffer(self, tensor: Tensor) -> Any:
        assert tensor.constant is not None
        data = tensor.constant.data
        address = np.frombuffer(data, np.uint8).ctypes.data if len(data) else 0
        key = (address, len(data), tensor.constant.host_type, tensor.constant.dim_order, tensor.dtype)
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


def row_major(tensor: Tensor) -> Any:
    """A constant's bytes, its dimensions in the order of its shape."""
    constant = tensor.constant
    assert constant is not None
    order = constant.dim_order
    if order == tuple(sorted(order)):
        return constant.data
    stored = np.frombuffer(constant.data, constant.host_type).reshape([tensor.max_shape[d] for d in order])
    return np.ascontiguousarray(stored.transpose(np.argsort(order)))


def upload_constant(device: Device, tensor: Tensor, buffer: Any) -> None:
    """The constant's bytes, straight from the file; 64-bit ones are narrowed, and all become row-major."""
    assert tensor.constant is not None
    data: Any = row_major(tensor)
    if tensor.constant.host_type != tensor.dtype.label:
        wide = np.frombuffer(data, tensor.constant.host_type)
        narrow = wide.astype(tensor.dtype.label)
        if not tensor.dtype.is_float and not np.array_equal(narrow, wide):
            raise UnsupportedError(
                f"constant {tensor.name} holds integers beyond 32 bits, which WebGPU has not"
            )
        data = narrow
    if len(data):
        device.write(buffer, 0, data)
