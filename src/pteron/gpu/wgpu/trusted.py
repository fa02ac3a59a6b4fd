"""Shaders that run without the driver's bounds checks.

A kernel with the mark `//#trusted` computes only indices that its rule has checked. Without bounds checks,
its arrays stay in registers. If this version of wgpu-py does not have the necessary function, the shader is
compiled normally.
"""

from __future__ import annotations

from typing import Any

try:
    from wgpu.backends.wgpu_native import ffi, lib
    from wgpu.backends.wgpu_native._api import GPUShaderModule

    _create = lib.wgpuDeviceCreateShaderModuleTrusted
    _WGSL = lib.WGPUSType_ShaderSourceWGSL
    AVAILABLE = True
except (ImportError, AttributeError):
    AVAILABLE = False

MARK = "//#trusted"
_NO_CHECKS = 0


def shader_module(device: Any, label: str, code: str) -> Any:
    """A shader module, without bounds checks if the code has the mark."""
    if not AVAILABLE or MARK not in code:
        return device.create_shader_module(label=label, code=code)
    text, name = code.encode(), label.encode()
    # wgpu reads these objects during the call, so they must stay alive.
    text_data, name_data = ffi.new("char[]", text), ffi.new("char[]", name)
    source = ffi.new("WGPUShaderSourceWGSL *")
    source.chain.sType = _WGSL
    source.code.data, source.code.length = text_data, len(text)
    descriptor = ffi.new("WGPUShaderModuleDescriptor *")
    descriptor.nextInChain = ffi.cast("WGPUChainedStruct *", source)
    descriptor.label.data, descriptor.label.length = name_data, len(name)
    handle = _create(device._internal, descriptor, _NO_CHECKS)
    if handle == ffi.NULL:
        return device.create_shader_module(label=label, code=code)  # its error says what is wrong
    return GPUShaderModule(label, handle, device)
