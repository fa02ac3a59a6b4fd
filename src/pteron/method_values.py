"""One value of a call: an input as the GPU needs it, and an output from the bytes of the GPU."""

from __future__ import annotations

import operator
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from pteron.arrays import GpuArray, host
from pteron.errors import InputError
from pteron.gpu.call import Read
from pteron.gpu.device import Device
from pteron.ir.live import Live
from pteron.ir.values import Port, SymInt, Tensor, ValueId
from pteron.plan.dynamic import check_shape


def read_input(port: Port, value: Any, device: Device) -> Any:
    """Convert an input to the GPU's format and check it."""
    if isinstance(port.value, SymInt):
        return _integer(value, port.name)
    if not isinstance(port.value, Tensor):
        return None  # a constant that the exporter kept as an input
    if isinstance(value, GpuArray):
        _check_gpu_array(port, port.value, value, device)
        array: Any = value
    else:
        array = host.read(value, port.name)
    check_shape(port, tuple(array.shape))
    if isinstance(array, GpuArray):
        return array
    return host.to_gpu(array, port.host_type, port.value.dtype, port.name, value)


def _integer(value: Any, name: str) -> int:
    if not isinstance(value, bool):
        with suppress(TypeError):
            return operator.index(value)
    raise InputError(f"{name}: expected an integer, got {type(value).__name__}")


def _check_gpu_array(port: Port, tensor: Tensor, value: GpuArray, device: Device) -> None:
    if value.device is not device:
        raise InputError(f"{port.name}: the GpuArray belongs to another device: pass its .numpy()")
    if value.gpu_dtype is not tensor.dtype:
        raise InputError(f"{port.name}: expected dtype {port.host_type}, got {value.dtype}")


def read_output(
    port: Port,
    data: memoryview,
    reads: dict[ValueId, Read],
    integers: dict[str, Live],
    counts: dict[ValueId, Tensor],
    from_gpu: Callable[..., Any],
) -> Any:
    """An output of a call. `data` are the bytes of all its reads."""
    if isinstance(port.value, SymInt):
        return integers[port.name]
    if not isinstance(port.value, Tensor):
        return port.value
    read = reads[port.value.id]
    if not read.nbytes:
        return host.empty(read.shape, port.host_type)
    array = from_gpu(read.bytes_in(data), port.value.dtype, port.host_type, read.shape)
    counter = counts.get(port.value.id)
    return array if counter is None else host.first(array, read_count(reads[counter.id].bytes_in(data)))


def read_count(data: memoryview) -> int:
    """The number of elements that a kernel has counted."""
    return int.from_bytes(data[:4], "little", signed=True)
