"""ExecuTorch's Vulkan partitioner. It keeps the reasons why operators are not delegated.

A delegate stores int64 constants in 32 bits. Operators that use larger ones stay outside.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import torch
from executorch.backends.vulkan.partitioner import vulkan_partitioner
from executorch.backends.vulkan.partitioner.vulkan_partitioner import (
    VulkanPartitioner,
    VulkanSupportedOperators,
)
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.export import ExportedProgram
from torch.fx import Node
from torch.utils import _pytree as pytree

from pteron.tools.exporter.replaced import replaced

Reasons = dict[str, set[str]]  # why an operator was not delegated, by its name without overload

LARGE = "it uses an integer beyond 32 bits, which a delegate cannot store"
LOW, HIGH = -(2**31), 2**31 - 1


class Partitioner(VulkanPartitioner):  # type: ignore[misc]
    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__(options)
        self.reasons: Reasons = {}

    def partition(self, exported_program: ExportedProgram) -> Any:
        with _operators(self.reasons, large_constants(exported_program)):
            return super().partition(exported_program)


def _operators(reasons: Reasons, large: set[Node]) -> AbstractContextManager[None]:
    """Let the partitioner ask this class which operators it may delegate. It has no argument for it."""

    class DelegableOperators(VulkanSupportedOperators):  # type: ignore[misc]
        def log_skip(self, node: Node, reason: str) -> None:
            if node.op == "call_function":
                reasons.setdefault(operator_name(node.target), set()).add(reason.split(" for op ")[0])

        def is_node_supported(self, submodules: Any, node: Node) -> bool:
            if _has_large_number(node) or not large.isdisjoint(node.all_input_nodes):
                self.log_skip(node, LARGE)
                return False
            return bool(super().is_node_supported(submodules, node))

    return replaced(vulkan_partitioner, "VulkanSupportedOperators", lambda _: DelegableOperators)


def large_constants(program: ExportedProgram) -> set[Node]:
    """The placeholders of constants with an element beyond 32 bits."""
    signature = program.graph_signature
    names = {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }
    values = {**program.constants, **program.state_dict}
    return {
        node
        for node in program.graph.find_nodes(op="placeholder")
        if _is_large(values.get(names.get(node.name, "")))
    }


def _is_large(value: Any) -> bool:
    if not isinstance(value, torch.Tensor) or value.dtype is not torch.int64 or not value.numel():
        return False
    if isinstance(value, FakeTensor):
        if value.constant is None:
            return True  # unknown: outside of the delegate, 64 bits are kept
        value = value.constant
    with unset_fake_temporarily():  # else the elements of a real tensor are unknown here
        low, high = map(int, value.aminmax())
    return not LOW <= low <= high <= HIGH


def _has_large_number(node: Node) -> bool:
    """Whether an argument is beyond 32 bits. The ends of slices are: they mean the end of a dimension."""
    if node.op != "call_function" or "slice" in operator_name(node.target):
        return False
    numbers = (arg for arg in pytree.tree_leaves((node.args, node.kwargs)) if type(arg) is int)
    return any(not LOW <= number <= HIGH for number in numbers)


def operator_name(target: Any) -> str:
    """The name of an operator in the file, without its overload: aten::mul."""
    schema = getattr(target, "_schema", None)
    return str(schema.name) if schema is not None else str(getattr(target, "__name__", target))
