"""A `.pte` program around a model's delegate: `forward`, and the model's facts as constant methods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pteron.pte import schema, vulkan, write_delegate
from pteron.pte.delegate_plan import LEAF, PortType, as_tree, delegate_plan, tree_node
from pteron.pte.schema import EValue, ExecutionPlan, ScalarType

Blob = bytes | memoryview
Fact = int | bool | Sequence[int]

CONSTANTS, DELEGATE = 0, 1  # segments; those of named data follow


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
    """One call of the delegate. Tokens and a mask are [B, S], which may vary. A position is [1]."""
    inputs = (PortType(ScalarType.LONG, is_dynamic=len(_dims(graph, n)) > 1) for n in graph.input_ids)
    outputs = (PortType(ScalarType.FLOAT) for _ in graph.output_ids)
    return delegate_plan(graph, inputs, outputs, DELEGATE)


def _dims(graph: vulkan.VkGraph, value: int) -> tuple[int, ...]:
    tensor = graph.values[value].value
    assert isinstance(tensor, vulkan.VkTensor)
    return tensor.dims


def _constant_method(name: str, fact: Fact) -> ExecutionPlan:
    """A method without instructions: its outputs are constants. A list is as many outputs."""
    many = not isinstance(fact, int)
    facts = tuple(fact) if not isinstance(fact, int) else (fact,)
    values = tuple(EValue(schema.Bool(f) if isinstance(f, bool) else schema.Int(f)) for f in facts)
    form = tree_node("builtins.list", [LEAF] * len(facts)) if many else LEAF
    return ExecutionPlan(
        name=name,
        container_meta_type=schema.ContainerMetadata("", as_tree(form)),
        values=values,
        outputs=tuple(range(len(values))),
        chains=(schema.Chain(),),
        non_const_buffer_sizes=(0,),
    )
