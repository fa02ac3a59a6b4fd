"""torch.export and ExecuTorch's lowering, with workarounds for their known problems."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
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

Reasons = dict[str, set[str]]  # why an operator was not delegated, by its name without overload


@dataclass(frozen=True, slots=True)
class Lowered:
    """The bytes of a `.pte` file, and what was not delegated."""

    buffer: bytes
    reasons: Reasons
    partitioner_error: str | None = None  # why nothing is delegated, where that was wanted


def lower(
    module: nn.Module,
    example_inputs: tuple[Any, ...],
    dynamic_shapes: Any,
    *,
    options: dict[str, Any] | None,
    constant_methods: dict[str, Any],
    needs_delegate: bool = False,
) -> Lowered:
    """Without `options` for the partitioner, nothing is delegated.

    The partitioner fails on some programs that ExecuTorch can write without it. Pteron runs both forms, so in
    this case nothing is delegated, unless the caller needs the delegate.
    """

    def attempt(partition: bool) -> Lowered:
        with torch.no_grad():
            program = torch.export.export(module, example_inputs, dynamic_shapes=dynamic_shapes)
            return _lower_program(program, options if partition else None, constant_methods)

    try:
        return attempt(partition=True)
    except Exception as error:
        if options is None or options or needs_delegate:
            raise
        try:
            alone = attempt(partition=False)
        except Exception:
            raise error from None  # the partitioner was not the cause
        return replace(alone, partitioner_error=f"{type(error).__name__}: {error}")


def _lower_program(program: Any, options: dict[str, Any] | None, constant_methods: dict[str, Any]) -> Lowered:
    partitioner = None
    if options is not None:
        remember_patterns()
        partitioner = [VulkanPartitioner(options)]
        program = fusible(program)
    with skip_reasons() as reasons:
        edge = to_edge_transform_and_lower(
            program, partitioner=partitioner, constant_methods=constant_methods
        )
    return Lowered(bytes(edge.to_executorch().buffer), reasons)


@functools.cache
def remember_patterns() -> None:
    """Cache the partitioner's rope patterns. It traces them for every program, which takes seconds."""
    for entry in fusable_patterns.values():
        if entry.get_graphs_fn is not None:
            entry.get_graphs_fn = functools.cache(entry.get_graphs_fn)


@contextmanager
def skip_reasons() -> Iterator[Reasons]:
    """Collect the reasons why the partitioner does not delegate operators. It only logs them."""
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
    """The name of an operator in the file, without its overload: aten::mul."""
    schema = getattr(target, "_schema", None)
    return str(schema.name) if schema is not None else str(getattr(target, "__name__", target))
