"""The arguments of a delegate's call: its inputs, arguments that it does not use, and its outputs."""

from __future__ import annotations

import pytest

from pteron.compiler.lower.delegate import split_call
from pteron.errors import FormatError
from pteron.pte import schema, vulkan

Shape = tuple[int, ...]


def split(inputs: list[Shape], outputs: list[Shape], args: list[Shape | int]) -> tuple[list[int], list[int]]:
    """The arguments that are matched with the inputs, and those for the outputs."""
    tensors = [vulkan.VkTensor(vulkan.VkDataType.FLOAT32, dims) for dims in (*inputs, *outputs)]
    graph = vulkan.VkGraph(
        version="0",
        chain=(),
        values=tuple(map(vulkan.VkValue, tensors)),
        input_ids=tuple(range(len(inputs))),
        output_ids=tuple(range(len(inputs), len(tensors))),
    )
    values = (schema.Int(arg) if isinstance(arg, int) else schema.Tensor(sizes=arg) for arg in args)
    plan = schema.ExecutionPlan("forward", values=tuple(map(schema.EValue, values)))
    pairs, results = split_call(graph, range(len(args)), plan)
    assert [value for value, _ in pairs] == list(range(len(inputs)))
    return [arg for _, arg in pairs], list(results)


A, B, C = (2, 3), (4,), (5, 6)


@pytest.mark.parametrize(
    "inputs, outputs, args, expected",
    [
        ([A, B], [C], [A, B, C], ([0, 1], [2])),
        ([A, B], [C], [7, A, 7, B, C], ([1, 3], [4])),  # unused integers
        ([A, B], [C], [A, B, 7, C], ([0, 1], [3])),
        ([A], [B, B], [A, C, B, B], ([0], [2, 3])),  # an unused tensor after the inputs
        ([A, B], [B], [C, A, B, B], ([1, 2], [3])),  # before them
        ([A, A], [A], [A, C, A, A], ([0, 2], [3])),  # and between them
        ([A], [B, C], [A, C], ([0], [1])),  # an output that is a mutated buffer has no argument
        ([], [B, C], [C], ([], [0])),
    ],
)
def test_arguments_are_matched(
    inputs: list[Shape],
    outputs: list[Shape],
    args: list[Shape | int],
    expected: tuple[list[int], list[int]],
) -> None:
    assert split(inputs, outputs, args) == expected


def test_a_call_that_could_be_matched_in_two_ways_is_refused() -> None:
    with pytest.raises(FormatError, match="do not tell which are unused"):
        split([A], [B], [A, A, B])


def test_a_call_without_the_inputs_is_refused() -> None:
    with pytest.raises(FormatError, match="2 inputs, which the 3 arguments of its call do not match"):
        split([A, B], [], [A, 7, C])
