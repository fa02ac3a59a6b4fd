"""A `.pte` program around a model's delegate: `forward`, and the model's facts as constant methods."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pteron.pte import schema, vulkan, write_delegate
from pteron.pte.schema import EValue, ExecutionPlan, ScalarType, TensorShapeDynamism

Blob = bytes | memoryview
Fact = int | bool | Sequence[int]

ALIGNMENT = 16  # of tensors in planned memory
CONSTANTS, DELEGATE = 0, 1  # segments; those of named data follow
_LEAF: dict[str, Any] = {"type": None, "context": None, "children_spec": []}


def assemble(
    graph: vulkan.VkGraph, facts: Mapping[str, Fact], named: Mapping[str, Blob]
) -> tuple[schema.Program, list[Blob]]:
    """The program, and its segments."""
    program = schema.Program(
        execution_plan=(_forward(graph), *(_constant_method(name, fact) for name, fact in facts.items())),
        # There are no constants outside the delegate, but the stock runtime wants the table of them.
        constant_segment=schema.SubsegmentOffsets(CONSTANTS, (0,)),
        named_data=tuple(schema.NamedData(key, number) for number, key in enumerate(named, DELEGATE + 1)),
    )
    return program, [b"", write_delegate(graph), *named.values()]


def _forward(graph: vulkan.VkGraph) -> ExecutionPlan:
    """One call of the delegate. Its first input is the tokens, whose number may vary."""
    arena = _Arena()
    values = [
        arena.tensor(
            ScalarType.LONG,
            _largest_shape(graph, value),
            TensorShapeDynamism.STATIC if number else TensorShapeDynamism.DYNAMIC_BOUND,
        )
        for number, value in enumerate(graph.input_ids)
    ]
    values += [
        arena.tensor(ScalarType.FLOAT, _largest_shape(graph, value), TensorShapeDynamism.STATIC)
        for value in graph.output_ids
    ]
    count, places = len(graph.input_ids), tuple(range(len(values)))
    call = schema.Instruction(schema.DelegateCall(0, places))
    where = schema.BackendDelegateDataReference(schema.DataLocation.SEGMENT, DELEGATE)
    return ExecutionPlan(
        name="forward",
        container_meta_type=schema.ContainerMetadata(_tree(_arguments(count)), _tree(_LEAF)),
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

    def tensor(
        self, kind: ScalarType, sizes: tuple[int, ...], dynamism: TensorShapeDynamism
    ) -> schema.Tensor:
        tensor = schema.Tensor(
            scalar_type=kind,
            sizes=sizes,
            dim_order=tuple(range(len(sizes))),
            allocation_info=schema.AllocationDetails(1, self.size),
            shape_dynamism=dynamism,
        )
        self.size += tensor.nbytes + -tensor.nbytes % ALIGNMENT
        return tensor


def _largest_shape(graph: vulkan.VkGraph, value: int) -> tuple[int, ...]:
    tensor = graph.values[value].value
    assert isinstance(tensor, vulkan.VkTensor)
    return tensor.dims


def _constant_method(name: str, fact: Fact) -> ExecutionPlan:
    """A method without instructions: its outputs are constants. A list is as many outputs."""
    many = not isinstance(fact, int)
    facts = tuple(fact) if not isinstance(fact, int) else (fact,)
    values = tuple(EValue(schema.Bool(f) if isinstance(f, bool) else schema.Int(f)) for f in facts)
    form = _node("builtins.list", [_LEAF] * len(facts)) if many else _LEAF
    return ExecutionPlan(
        name=name,
        container_meta_type=schema.ContainerMetadata("", _tree(form)),
        values=values,
        outputs=tuple(range(len(values))),
        chains=(schema.Chain(),),
        non_const_buffer_sizes=(0,),
    )


# -- how ExecuTorch notes the structure of arguments and results --------------------------------------


def _arguments(count: int) -> dict[str, Any]:
    """`count` positional arguments and no keywords."""
    keywords = _node("builtins.dict", [], context="[]")
    return _node("builtins.tuple", [_node("builtins.tuple", [_LEAF] * count), keywords])


def _node(kind: str, children: list[dict[str, Any]], context: str = "null") -> dict[str, Any]:
    return {"type": kind, "context": context, "children_spec": children}


def _tree(node: dict[str, Any]) -> str:
    return json.dumps([1, node])
