"""torch.export and ExecuTorch's lowering, with their known traps handled."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from executorch.backends.vulkan import patterns  # noqa: F401  registers the patterns
from executorch.backends.vulkan.partitioner.vulkan_partitioner import (
    VulkanPartitioner,
    VulkanSupportedOperators,
)
from executorch.backends.vulkan.patterns.pattern_registry import fusable_patterns
from executorch.exir import to_edge_transform_and_lower
from torch import nn

from pteron.exporting.fusible import fusible

Reasons = dict[str, set[str]]  # why an operator, by its name without overload, was not delegated


def lower(
    module: nn.Module,
    example_inputs: tuple[Any, ...],
    dynamic_shapes: Any,
    *,
    options: dict[str, Any] | None,
    constant_methods: dict[str, Any],
) -> tuple[bytes, Reasons]:
    """The bytes of a `.pte` file. Without `options` (for the partitioner), nothing is delegated."""
    with torch.no_grad():
        program = torch.export.export(module, example_inputs, dynamic_shapes=dynamic_shapes)
        partitioner = None
        if options is not None:
            remember_patterns()
            partitioner = [VulkanPartitioner(options)]
            program = fusible(program)
        with skip_reasons() as reasons:
            edge = to_edge_transform_and_lower(
                program, partitioner=partitioner, constant_methods=constant_methods
            )
        return bytes(edge.to_executorch().buffer), reasons


@functools.cache
def remember_patterns() -> None:
    """The partitioner traces its rope patterns anew for every program: seconds each time, unless kept."""
    for entry in fusable_patterns.values():
        if entry.get_graphs_fn is not None:
            entry.get_graphs_fn = functools.cache(entry.get_graphs_fn)


@contextmanager
def skip_reasons() -> Iterator[Reasons]:
    """Why the partitioner leaves operators outside, which it otherwise only logs."""
    reasons: Reasons = {}
    before = VulkanSupportedOperators.log_skip

    def keep(self: Any, node: torch.fx.Node, reason: str) -> None:
        if node.op == "call_function":
            name = operator_name(node.target)
            reasons.setdefault(name, set()).add(reason.split(" for op ")[0])

    VulkanSupportedOperators.log_skip = keep
    try:
        yield reasons
    finally:
        VulkanSupportedOperators.log_skip = before


def operator_name(target: Any) -> str:
    """As the file will write it, but without its overload: aten::mul."""
    schema = getattr(target, "_schema", None)
    return str(schema.name) if schema is not None else str(getattr(target, "__name__", target))
