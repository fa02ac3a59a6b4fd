"""A shader that does not compile: the error names the line of the `.wgsl` file."""

from __future__ import annotations

import pytest

from pteron.compiler.ir.dtypes import DType
from pteron.compiler.ops import kernel as kernels
from pteron.engine.devices.device import Device
from pteron.engine.executor import Shader
from pteron.errors import DeviceError


def test_the_error_names_the_file_and_the_line(device: Device) -> None:
    kernel = kernels.load("copy")
    text = kernels.source(kernel, dict.fromkeys("xy", DType.float32), {})
    number = next(line.number for line in kernel.lines if "y[i] = x[i];" in line.text)
    shader = Shader(kernel, text.replace("y[i] = x[i];", "y[i] = z[i];"))
    with pytest.raises(DeviceError, match=rf"kernel copy: (?s:.*)\(copy\.wgsl:{number}\)"):
        shader.compile(device)
