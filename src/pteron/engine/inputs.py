"""The inputs of a call: their order, and each as the GPU needs it."""

from __future__ import annotations

import math
import operator
import reprlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from pteron.compiler.ir.values import Port, SymInt, Tensor
from pteron.compiler.plan.dynamic import check_shape
from pteron.engine.arrays import GpuArray, host
from pteron.engine.devices.device import Device
from pteron.errors import InputError


class Inputs:
    """The inputs that a caller gives to a method."""

    def __init__(self, method: str, ports: Sequence[Port]) -> None:
        self._method = method
        self._ports = ports
        self._names = [port.name for port in ports]
        self._accepted = [port.max_shape for port in ports]  # the shapes that were checked last

    def in_order(self, inputs: Sequence[Any], named: Mapping[str, Any]) -> Sequence[Any]:
        """The inputs in the order of the program. Some may be given by name."""
        if not named and len(inputs) == len(self._names):
            return inputs
        names = self._names[len(inputs) :]
        if len(inputs) + len(named) == len(self._names) and named.keys() == set(names):
            return (*inputs, *(named[name] for name in names))
        wanted = ", ".join(map(_described, self._ports))
        by_name = f" and {', '.join(named)} by name" if named else ""
        raise InputError(
            f"method '{self._method}' takes {len(self._ports)} inputs ({wanted}), got {len(inputs)}{by_name}"
        )

    def read(self, inputs: Sequence[Any], device: Device) -> list[Any]:
        """Convert each input to the GPU's format and check it. Nothing changes yet."""
        return [self._read(place, value, device) for place, value in enumerate(inputs)]

    def _read(self, place: int, value: Any, device: Device) -> Any:
        port = self._ports[place]
        if isinstance(port.value, SymInt):
            return _integer(value, port.name)
        if not isinstance(port.value, Tensor):
            _check_constant(port, value)
            return None
        if isinstance(value, GpuArray):
            _check_gpu_array(port, port.value, value, device)
            # The same integers may have one word in one program and two in another.
            array: Any = value if value.gpu_dtype is port.value.dtype else host.read(value.read(), port.name)
        else:
            array = host.read(value, port.name)
        if array.shape != self._accepted[place]:
            check_shape(port, tuple(array.shape))
            self._accepted[place] = tuple(array.shape)
        if isinstance(array, GpuArray):
            return array
        return host.to_gpu(array, port.host_type, port.value.dtype, port.name, value)


def _described(port: Port) -> str:
    if isinstance(port.value, Tensor):
        return f"{port.name}: {port.host_type}{list(port.max_shape)}"
    constant = "" if port.value is None or isinstance(port.value, SymInt) else f" = {port.value!r}"
    return f"{port.name}: {port.host_type}{constant}"


def _check_constant(port: Port, value: Any) -> None:
    """An input that the exporter made a constant has no effect, so it must have this value."""
    constant: Any = port.value
    if value is constant:
        return
    with suppress(TypeError, ValueError):  # not a number
        if value == constant or math.isclose(value, constant, rel_tol=1e-6):
            return
    raise InputError(
        f"{port.name} was exported as the constant {constant!r}, got {reprlib.repr(value)}: "
        "export the program again for another value"
    )


def _integer(value: Any, name: str) -> int:
    if not isinstance(value, bool):
        with suppress(TypeError):
            return operator.index(value)
    raise InputError(f"{name}: expected an integer, got {type(value).__name__}")


def _check_gpu_array(port: Port, tensor: Tensor, value: GpuArray, device: Device) -> None:
    if value.device is not device:
        raise InputError(f"{port.name}: the GpuArray belongs to another device: pass its .numpy()")
    value.check_open()
    if value.gpu_dtype is not tensor.dtype and value.host_type != port.host_type:
        raise InputError(f"{port.name}: expected dtype {port.host_type}, got {value.dtype}")
