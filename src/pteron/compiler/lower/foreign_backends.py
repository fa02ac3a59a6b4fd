"""Delegates that only their own backend can run: what they contain, and how to export the model instead."""

from __future__ import annotations

# Backends whose delegates are code for one kind of processor.
COMPILED = {
    "AotiBackend": "code that AOTInductor compiled",
    "CoreAIBackend": "a compiled model for Apple's Core AI",
    "CoreMLBackend": "a compiled model for Apple's Core ML",
    "CudaBackend": "code that AOTInductor compiled for NVIDIA's GPUs",
    "EnnBackend": "a compiled model for Samsung's processors",
    "EthosUBackend": "code for Arm's Ethos-U",
    "MPSBackend": "a graph for Apple's Metal Performance Shaders",
    "MetalBackend": "code that AOTInductor compiled for Apple's GPUs",
    "NeuropilotBackend": "a compiled model for MediaTek's processors",
    "NeutronBackend": "code for NXP's Neutron",
    "OpenvinoBackend": "a compiled model for OpenVINO",
    "QnnBackend": "a compiled model for Qualcomm's processors",
    "VgfBackend": "a compiled model for Arm's neural GPUs",
}
GRAPHS = {"MLXBackend": "a graph for Apple's MLX, which Pteron does not read"}
INSTEAD = (
    "export the model again with XnnpackPartitioner, VulkanPartitioner or WebGPUPartitioner, or without a "
    "partitioner, from the same torch model"
)


def refusal(backend: str) -> str:
    """Why a delegate cannot run, and what to do."""
    if backend in GRAPHS:
        return f"it is {GRAPHS[backend]}: {INSTEAD}"
    found = COMPILED.get(backend)
    what = f"it is {found}" if found else "its contents are known only to this backend"
    return f"{what}, and only '{backend}' can run it: {INSTEAD}"
