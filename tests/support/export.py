"""Programs for tests, exported by stock ExecuTorch. torch is imported at the first export."""

from __future__ import annotations

import functools
from typing import Any


def export(
    module: Any,
    args: tuple[Any, ...],
    dynamic_shapes: Any = None,
    partitioner: bool = True,
    compile_options: dict[str, Any] | None = None,
    any_operator: bool = False,
) -> bytes:
    """The bytes of a `.pte` file: delegated to Vulkan where possible, or without a delegate.

    `any_operator`: operators outside of torch's core set are written as they are.
    """
    import torch

    program = torch.export.export(module.eval(), args, dynamic_shapes=dynamic_shapes)
    return lower(program, partitioner, compile_options, any_operator)


def lower(
    program: Any,
    partitioner: Any = True,
    compile_options: dict[str, Any] | None = None,
    any_operator: bool = False,
) -> bytes:
    """Lower a `torch.export.ExportedProgram`, which can be lowered again.

    `partitioner`: True for Vulkan's, False for none, or a partitioner.
    """
    from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower

    chosen = vulkan_partitioner(compile_options) if partitioner is True else partitioner
    partitioners = [chosen] if chosen else None
    config = EdgeCompileConfig(_check_ir_validity=not any_operator)
    constants, state = dict(program.constants), dict(program.state_dict)
    try:
        edge = to_edge_transform_and_lower(program, partitioner=partitioners, compile_config=config)
        return bytes(edge.to_executorch().buffer)
    finally:  # ExecuTorch removes what it has put into the delegate
        program.constants.update(constants)
        program.state_dict.update(state)


def vulkan_partitioner(compile_options: dict[str, Any] | None = None) -> Any:
    from executorch.backends.vulkan.partitioner.vulkan_partitioner import VulkanPartitioner

    remember_rope_patterns()
    return VulkanPartitioner(compile_options)


def xnnpack_partitioner() -> Any:
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner

    return XnnpackPartitioner()


def quantized_int8(module: Any, args: tuple[Any, ...], **config: Any) -> Any:
    """A module with int8 weights and activations, as the tutorials for XNNPACK make it."""
    import torch
    from executorch.backends.xnnpack.quantizer import xnnpack_quantizer as quantizers
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    options = quantizers.get_symmetric_quantization_config(**{"is_per_channel": True, **config})
    quantizer = quantizers.XNNPACKQuantizer().set_global(options)
    prepared = prepare_pt2e(torch.export.export(module, args).module(), quantizer)
    prepared(*args)
    return convert_pt2e(prepared)


@functools.cache
def remember_rope_patterns() -> None:
    """Cache the partitioner's rope patterns. It traces them for every program, which takes seconds."""
    from executorch.backends.vulkan import patterns  # noqa: F401  registers the patterns
    from executorch.backends.vulkan.patterns.pattern_registry import fusable_patterns

    for entry in fusable_patterns.values():
        if entry.get_graphs_fn is not None:
            entry.get_graphs_fn = functools.cache(entry.get_graphs_fn)
