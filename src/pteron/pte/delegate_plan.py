"""A method that calls one delegate: the execution plan around a Vulkan graph."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from pteron.pte import schema, vulkan
from pteron.pte.schema import EValue, ExecutionPlan, ScalarType, TensorShapeDynamism

ALIGNMENT = 16  # of tensors in planned memory
LEAF: dict[str, Any] = {"type": None, "context": None, "children_spec": []}


class PortType(NamedTuple):
    """The type of an input or output in a plan."""

    scalar_type: ScalarType
    is_dynamic: bool = False


def delegate_plan(
    graph: vulkan.VkGraph, inputs: Iterable[PortType], outputs: Iterable[PortType], segment: int
) -> ExecutionPlan:
    """The method `forward`. `segment` is the number of the segment with the delegate's blob."""
    arena = _Arena()
    ports = [*zip(graph.input_ids, inputs, strict=True), *zip(graph.output_ids, outputs, strict=True)]
    values = [arena.tensor(kind, _largest_shape(graph, value)) for value, kind in ports]
    count, places = len(graph.input_ids), tuple(range(len(values)))
    call = schema.Instruction(schema.DelegateCall(0, places))
    where = schema.BackendDelegateDataReference(schema.DataLocation.SEGMENT, segment)
    return ExecutionPlan(
        name="forward",
        container_meta_type=schema.ContainerMetadata(as_tree(_arguments(count)), as_tree(LEAF)),
        values=tuple(EValue(value) for value in values),
        inputs=places[:count],
        outputs=places[count:],
        chains=(schema.Chain(inputs=(), outputs=(), instructions=(call,)),),
        delegates=(schema.BackendDelegate(vulkan.BACKEND_ID, where),),
        non_const_buffer_sizes=(0, arena.size),
    )


class _Arena:
    """Planned memory for the tensors outside the delegate."""

    def __init__(self) -> None:
        self.size = 0

    def tensor(self, kind: PortType, sizes: tuple[int, ...]) -> schema.Tensor:
        tensor = schema.Tensor(
            scalar_type=kind.scalar_type,
            sizes=sizes,
            dim_order=tuple(range(len(sizes))),
            allocation_info=schema.AllocationDetails(1, self.size),
            shape_dynamism=(
                TensorShapeDynamism.DYNAMIC_BOUND if kind.is_dynamic else TensorShapeDynamism.STATIC
            ),
        )
        self.size += tensor.nbytes + -tensor.nbytes % ALIGNMENT
        return tensor


def _largest_shape(graph: vulkan.VkGraph, value: int) -> tuple[int, ...]:
    tensor = graph.values[value].value
    assert isinstance(tensor, vulkan.VkTensor)
    return tensor.dims


# -- how ExecuTorch notes the structure of arguments and results --------------------------------------


def tree_node(kind: str, children: list[dict[str, Any]], context: str = "null") -> dict[str, Any]:
    return {"type": kind, "context": context, "children_spec": children}


def as_tree(node: dict[str, Any]) -> str:
    return json.dumps([1, node])


def _arguments(count: int) -> dict[str, Any]:
    """`count` positional arguments and no keywords."""
    keywords = tree_node("builtins.dict", [], context="[]")
    return tree_node("builtins.tuple", [tree_node("builtins.tuple", [LEAF] * count), keywords])
