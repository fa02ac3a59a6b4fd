"""Compile shader texts with wgpu, as Pteron does. A process of its own, in the environment of `drivers`.

    python -m benchmarks.gpu_model.compile_texts TEXTS.json CHECKS

Writes `compiled.json` into $GPU_MODEL_CAPTURE: the device, and for each text its number there, or an error.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from benchmarks.gpu_model.compiler import CHECKS
from pteron.engine.devices.wgpu import native, public
from pteron.engine.devices.wgpu.wgpu_device import WgpuDevice
from pteron.errors import PteronError


def main(source: str, checks: str) -> None:
    folder = Path(os.environ["GPU_MODEL_CAPTURE"])
    flags = CHECKS[checks]
    if flags is not None:
        _check_all_alike(flags)
    device = WgpuDevice()
    compiled: dict[str, Any] = {}
    for item in json.loads(Path(source).read_text("utf-8")):
        number = _lines(folder / "pipelines.jsonl")
        try:
            device.pipeline(item["text"], item["kernel"], item["kinds"])
        except PteronError as error:
            compiled[item["key"]] = {"error": str(error)}
        else:
            compiled[item["key"]] = {"number": number}
    found = {"adapter": str(device.adapter), "kernels": compiled}
    (folder / "compiled.json").write_text(json.dumps(found), "utf-8")


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def _check_all_alike(flags: int) -> None:
    """In this process, every kernel gets the same run-time checks."""
    from wgpu.backends.wgpu_native import ffi, lib
    from wgpu.backends.wgpu_native._api import GPUShaderModule

    def shader_module(device: Any, label: str, code: str, *_: Any) -> Any:
        text, name = code.encode(), label.encode()
        # wgpu reads these objects during the call, so they must stay alive.
        text_data, name_data = ffi.new("char[]", text), ffi.new("char[]", name)
        source = ffi.new("WGPUShaderSourceWGSL *")
        source.chain.sType = lib.WGPUSType_ShaderSourceWGSL
        source.code.data, source.code.length = text_data, len(text)
        descriptor = ffi.new("WGPUShaderModuleDescriptor *")
        descriptor.nextInChain = ffi.cast("WGPUChainedStruct *", source)
        descriptor.label.data, descriptor.label.length = name_data, len(name)
        handle = lib.wgpuDeviceCreateShaderModuleTrusted(device._internal, descriptor, flags)
        return GPUShaderModule(label, handle, device)

    native.shader_module = public.shader_module = shader_module


if __name__ == "__main__":
    main(*sys.argv[1:])
