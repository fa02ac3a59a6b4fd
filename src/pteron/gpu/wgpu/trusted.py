"""Shaders that run without the driver's bounds checks.

A kernel whose text says `//#trusted` computes only indices that its rule has checked, and keeps arrays in
registers that the checks would push into memory. Where this version of wgpu-py has no such call in the known
place, the shader is compiled like any other.
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
    """A shader module, trusted if it says so."""
    if not AVAILABLE or MARK not in code:
        return device.create_shader_module(label=label, code=code)
    text, name = code.encode(), label.encode()
    # wgpu reads these while the call lasts; they must live until then.
    text_data, name_data = ffi.new("char[]", text), ffi.new("char[]", name)
    source = ffi.new("WGPUShaderSourceWGSL *")
    source.chain.sType = _WGSL
    source.code.data, source.code.length = text_data, len(text)
    descriptor = ffi.new("WGPUShaderModuleDescriptor *")
    descriptor.nextInChain = ffi.cast("WGPUChainedStruct *", source)
    descriptor.label.data, descriptor.label.length = name_data, len(name)
    handle = _create(device._internal, descriptor, _NO_CHECKS)
    if handle == ffi.NULL:
        return device.create_shader_module(label=label, code=code)  # which says what is wrong
    return GPUShaderModule(label, handle, device)
