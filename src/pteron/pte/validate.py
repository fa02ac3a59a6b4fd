"""Check that every index in a decoded program is in range.

A file is checked once, when it is opened. Later layers can use its indices without a check.
"""

from collections.abc import Iterable
from typing import Any

from pteron.errors import FormatError
from pteron.pte import schema

MAX_RANK = 16  # ExecuTorch's own limit


def check_index(index: int, count: int, noun: str, where: str) -> None:
    if not 0 <= index < count:
        raise FormatError(f"{where} refers to {noun} {index}, but there are {count}")


def check_program(program: schema.Program) -> None:
    """Raise FormatError if a reference in the program is out of range."""
    names = [plan.name for plan in program.execution_plan]
    if len(set(names)) != len(names):
        raise FormatError(f"program: two methods have the same name: {', '.join(map(repr, names))}")
    for named in program.named_data:
        where = f"program: named data {named.key!r}"
        check_index(named.segment_index, len(program.segments), "segment", where)
    for plan in program.execution_plan:
        _check_plan(plan, f"program: method {plan.name!r}")


def _check_plan(plan: schema.ExecutionPlan, where: str) -> None:
    count = len(plan.values)
    _check_values(plan.inputs, count, f"{where}: inputs")
    _check_values(plan.outputs, count, f"{where}: outputs")
    for index, value in enumerate(plan.values):
        _check_value(value.val, plan, f"{where}: value {index}")
    for chain in plan.chains:
        _check_values(chain.inputs, count, f"{where}: chain inputs")
        _check_values(chain.outputs, count, f"{where}: chain outputs")
        for index, instruction in enumerate(chain.instructions):
            call = instruction.instr_args
            _check_call(call, plan, chain, f"{where}: instruction {index} ({type(call).__name__})")


def _check_values(ids: Iterable[int], count: int, where: str) -> None:
    for index in ids:
        check_index(index, count, "value", where)


def _check_value(value: object, plan: schema.ExecutionPlan, where: str) -> None:
    match value:
        case schema.IntList(items):
            _check_items(items, plan, schema.Int, where)
        case schema.TensorList(items):
            _check_items(items, plan, schema.Tensor, where)
        case schema.OptionalTensorList(items):
            _check_items((item for item in items if item != -1), plan, schema.Tensor | schema.Null, where)
        case schema.Tensor():
            _check_tensor(value, where)


def _check_items(ids: Iterable[int], plan: schema.ExecutionPlan, kind: Any, where: str) -> None:
    """Check that a list holds values of its type, and no other list: reading a list cannot recurse."""
    for index in ids:
        check_index(index, len(plan.values), "value", where)
        item = plan.values[index].val
        if not isinstance(item, kind):
            raise FormatError(f"{where}: a list holds value {index}, a {type(item).__name__}")


def _check_tensor(tensor: schema.Tensor, where: str) -> None:
    rank = len(tensor.sizes)
    if rank > MAX_RANK:
        raise FormatError(f"{where}: a tensor of rank {rank} exceeds the format's {MAX_RANK}")
    if any(size < 0 for size in tensor.sizes):
        raise FormatError(f"{where}: a size is negative in {list(tensor.sizes)}")
    if tensor.dim_order and sorted(tensor.dim_order) != list(range(rank)):
        raise FormatError(f"{where}: dim_order {list(tensor.dim_order)} does not permute {rank} dimensions")
    if tensor.storage_offset:
        raise FormatError(f"{where}: storage_offset is {tensor.storage_offset}, but the format requires 0")


def _check_call(call: object, plan: schema.ExecutionPlan, chain: schema.Chain, where: str) -> None:
    count = len(plan.values)
    match call:
        case schema.KernelCall(op_index, args):
            check_index(op_index, len(plan.operators), "operator", where)
            _check_values(args, count, where)
        case schema.DelegateCall(delegate_index, args):
            check_index(delegate_index, len(plan.delegates), "delegate", where)
            _check_values(args, count, where)
        case schema.MoveCall(move_from, move_to):
            _check_values((move_from, move_to), count, where)
        case schema.JumpFalseCall(condition, destination):
            check_index(condition, count, "value", where)
            # The index after the last instruction is the end of the method.
            check_index(destination, len(chain.instructions) + 1, "instruction", where)
        case schema.FreeCall(index):
            check_index(index, count, "value", where)
