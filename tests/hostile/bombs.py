"""Small files that ask for endless work, made by code. Each must be answered soon, and in little memory."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

from pteron.pte import program_chunks, schema, vulkan, write_delegate
from pteron.pte.schema import EValue, Instruction, JumpFalseCall, KernelCall, MoveCall, Operator

# -- programs -------------------------------------------------------------------------------------------

X, Y, SIZE, ONE, NEVER, FREE = range(6)  # values that every program here has
ABS, ADD, EQ, MUL, POW, SIZE_OF = range(6)  # and operators
OPERATORS = (
    Operator("aten::abs", "out"),
    Operator("executorch_prim::add", "Scalar"),
    Operator("executorch_prim::eq", "Scalar"),
    Operator("executorch_prim::mul", "Scalar"),
    Operator("executorch_prim::pow", "Scalar"),
    Operator("aten::sym_size", "int"),
)


def tensor(*sizes: int) -> schema.Tensor:
    return schema.Tensor(
        scalar_type=schema.ScalarType.FLOAT,
        sizes=sizes,
        dim_order=tuple(range(len(sizes))),
        shape_dynamism=schema.TensorShapeDynamism.DYNAMIC_BOUND,
    )


def encoded(*plans: schema.ExecutionPlan, delegate: vulkan.VkGraph | None = None) -> bytes:
    program = schema.Program(execution_plan=plans, constant_segment=schema.SubsegmentOffsets(0, (0,)))
    segments = [b"", write_delegate(delegate)] if delegate else [b""]
    return b"".join(map(bytes, program_chunks(program, segments)))


def method(
    instructions: Sequence[Any],
    more_values: Sequence[Any] = (),
    size: int = 1000,
    shape: Sequence[int] = (4,),
    name: str = "forward",
) -> schema.ExecutionPlan:
    values = (
        tensor(*shape),
        tensor(*shape),
        schema.Int(size),
        schema.Int(1),
        schema.Bool(False),
        *more_values,
    )
    return schema.ExecutionPlan(
        name=name,
        values=tuple(map(EValue, values)),
        inputs=(X,),
        outputs=(Y,),
        chains=(schema.Chain(instructions=tuple(map(Instruction, instructions))),),
        operators=OPERATORS,
        non_const_buffer_sizes=(0,),
    )


STEP = KernelCall(ABS, (X, Y, Y))


def loops(depth: int, body: Sequence[Any], size: int = 1000, name: str = "forward") -> schema.ExecutionPlan:
    """Loops inside each other: each begins one instruction after the one around it."""
    values: list[Any] = []
    instructions: list[Any] = [MoveCall(X, X)] * (depth - 1) + list(body)
    for level in range(depth):
        counter = FREE + len(values)
        values += [schema.Int(0), schema.Bool(False)]
        instructions += [
            KernelCall(ADD, (counter, ONE, counter)),
            KernelCall(EQ, (counter, SIZE, counter + 1)),
            JumpFalseCall(counter + 1, depth - 1 - level),
        ]
    return method([STEP, *_shifted(instructions)], values, size, name=name)


def _shifted(instructions: Sequence[Any]) -> list[Any]:
    """The same, one place further on."""
    return [
        JumpFalseCall(call.cond_value_index, call.destination_instruction + 1)
        if isinstance(call, JumpFalseCall)
        else call
        for call in instructions
    ]


def nested_loops() -> bytes:
    return encoded(loops(2, [STEP]))


def empty_loops() -> bytes:
    """No instruction of these makes a node."""
    return encoded(loops(4, [MoveCall(X, X)]))


def many_loops() -> bytes:
    """No method of these is large."""
    return encoded(*[loops(1, [STEP] * 10, name=f"m{number}") for number in range(500)])


def nested_branches(depth: int = 3000) -> bytes:
    condition = FREE
    instructions: list[Any] = [
        *(JumpFalseCall(condition, 2 * depth + 1 - level) for level in range(depth)),
        STEP,
        *(JumpFalseCall(NEVER, depth + 2 + level) for level in range(depth)),
    ]
    return encoded(method(instructions, [schema.Bool(True)]))


def squared_integers() -> bytes:
    """Each instruction would double the digits."""
    return encoded(method([STEP, *[KernelCall(MUL, (SIZE, SIZE, SIZE))] * 100]))


def power() -> bytes:
    return encoded(method([STEP, KernelCall(POW, (SIZE, FREE, SIZE))], [schema.Int(10**15)]))


def long_chain() -> bytes:
    """Elementwise operators in a row: fusion may not join them all, nor take long to find out."""
    calls = [KernelCall(ABS, (X, Y, Y)), *[KernelCall(ABS, (Y, Y, Y))] * 8000]
    return encoded(method(calls))


def many_inputs(count: int = 10_000) -> bytes:
    plan = method([STEP], [tensor(4, 4, 4)] * count)
    inputs = (X, *range(FREE, FREE + count))
    return encoded(schema.ExecutionPlan(
        name=plan.name, values=plan.values, inputs=inputs, outputs=plan.outputs, chains=plan.chains,
        operators=plan.operators, non_const_buffer_sizes=(0,),
    ))  # fmt: skip


def long_lists(items: int = 30_000, calls: int = 10_000) -> bytes:
    """One list, which many operators read."""
    x = vulkan.VkValue(vulkan.VkTensor(vulkan.VkDataType.FLOAT32, (1,), -1, -1))
    values = (
        x,
        vulkan.VkValue(vulkan.ValueList((0,) * items)),
        vulkan.VkValue(vulkan.Int(0)),
        vulkan.VkValue(vulkan.VkTensor(vulkan.VkDataType.FLOAT32, (items,), -1, -1)),
    )
    chain = (vulkan.OperatorCall(0, "aten.cat.default", (1, 2, 3)),) * calls
    graph = vulkan.VkGraph(chain=chain, values=values, input_ids=(0,), output_ids=(3,))
    where = schema.BackendDelegateDataReference(schema.DataLocation.SEGMENT, 1)
    plan = schema.ExecutionPlan(
        name="forward",
        values=(EValue(tensor(1)), EValue(tensor(items))),
        inputs=(0,),
        outputs=(1,),
        chains=(schema.Chain(instructions=(Instruction(schema.DelegateCall(0, (0, 1))),)),),
        delegates=(schema.BackendDelegate(vulkan.BACKEND_ID, where),),
        non_const_buffer_sizes=(0,),
    )
    return encoded(plan, delegate=graph)


def endless_tensors() -> bytes:
    """Shapes whose bytes no memory holds."""
    return encoded(method([STEP], shape=(2**31 - 1,) * 16))


PROGRAMS: dict[str, Callable[[], bytes]] = {
    make.__name__: make
    for make in (
        nested_loops,
        empty_loops,
        many_loops,
        nested_branches,
        squared_integers,
        power,
        long_chain,
        many_inputs,
        long_lists,
        endless_tensors,
    )
}


# -- language models ------------------------------------------------------------------------------------


def gguf(facts: int, tensors: int, body: bytes) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, tensors, facts) + body


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def endless_array() -> bytes:
    """49 bytes that announce 2^60 elements."""
    return gguf(1, 0, text("a") + struct.pack("<IIQ", 9, 0, 2**60))


def endless_strings() -> bytes:
    return gguf(1, 0, text("a") + struct.pack("<IIQ", 9, 8, 2**40) + bytes(1000))


def nested_arrays(depth: int = 20_000) -> bytes:
    return gguf(1, 0, text("a") + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * depth)


def endless_facts() -> bytes:
    return gguf(2**60, 2**60, b"")


def shared_weights(count: int = 1000) -> bytes:
    """Every tensor has the same bytes."""
    entries = b"".join(text(f"t{n}") + struct.pack("<IQIQ", 1, 1024, 0, 0) for n in range(count))
    return gguf(0, count, entries) + bytes(8192)


LANGUAGE_MODELS: dict[str, Callable[[], bytes]] = {
    make.__name__: make
    for make in (endless_array, endless_strings, nested_arrays, endless_facts, shared_weights)
}
