"""torch.export and ExecuTorch's lowering, with workarounds for their known problems."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Iterator, Mapping
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
from torch.utils import _pytree as pytree

from pteron.exporting.fusible import rewritten
from pteron.exporting.mending import join_buffers, sizes_stay_dynamic, unchanged_numbers
from pteron.lower.port_names import ENTRY, is_name

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
            with unchanged_numbers(module):
                program = torch.export.export(module, example_inputs, dynamic_shapes=dynamic_shapes)
            join_buffers(program)
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
    names = {"forward": port_names(program)}
    partitioner = None
    if options is not None:
        remember_patterns()
        partitioner = [VulkanPartitioner(options)]
    program = rewritten(program, delegated=partitioner is not None)
    with skip_reasons() as reasons, sizes_stay_dynamic():
        edge = to_edge_transform_and_lower(
            program, partitioner=partitioner, constant_methods=constant_methods
        )
    edge._named_data_store.add_named_data(ENTRY, json.dumps(names).encode())
    return Lowered(bytes(edge.to_executorch().buffer), reasons)


def port_names(program: Any) -> dict[str, list[str]]:
    """The names of the arguments, and of the outputs if the module returns a dictionary or a dataclass."""
    signature = program.graph_signature
    outputs = pytree.tree_unflatten(range(len(signature.user_outputs)), program.call_spec.out_spec)
    if dataclasses.is_dataclass(outputs):
        outputs = {f.name: getattr(outputs, f.name) for f in dataclasses.fields(outputs)}
    names = {"inputs": [str(name) for name in signature.user_inputs]}
    if isinstance(outputs, Mapping) and all(isinstance(number, int) for number in outputs.values()):
        names["outputs"] = sorted(outputs, key=lambda name: outputs[name])
    return {
        kind: found
        for kind, found in names.items()
        if all(map(is_name, found)) and len(set(found)) == len(found)
    }


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
