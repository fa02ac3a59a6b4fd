"""Control flow: the jumps of a program become branches and loops, and these become nodes.

A graph has no jumps. A branch depends on one of two things. An integer that the host knows before the call
(a size, a position, an element of an input) makes the nodes of the branch conditional: the sweep plans only
those that run. A tensor that the GPU computes is never waited for: both branches run, and the GPU selects
the results of the right one.

Loops have a count, the size of a tensor's dimension (`torch.map`, `scan`). They are unrolled to the largest
count. Iterations that a live shape does not need are conditional nodes too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from pteron.compiler.ir.values import Arg, SymInt, Tensor
from pteron.errors import UnsupportedError
from pteron.pte import schema

if TYPE_CHECKING:
    from pteron.compiler.lower.instructions import Lowering

MAX_ITERATIONS = 1024
MAX_NESTING = 64  # branches and loops inside each other; exported programs have a few


@dataclass(frozen=True, slots=True)
class PlainInstruction:
    """One instruction that is not a jump."""

    number: int


@dataclass(frozen=True, slots=True)
class Branch:
    number: int
    condition: int  # index of a value
    then: tuple[Block, ...]
    otherwise: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Loop:
    """Run the body; repeat until the condition holds."""

    number: int
    condition: int
    body: tuple[Block, ...]


Block: TypeAlias = PlainInstruction | Branch | Loop


def parse(instructions: Sequence[schema.Instruction], values: Sequence[schema.EValue]) -> tuple[Block, ...]:
    """The branches and loops of a chain. A jump that belongs to neither is refused."""
    calls = [instruction.instr_args for instruction in instructions]
    loops = {
        call.destination_instruction: number
        for number, call in reversed(list(enumerate(calls)))
        if isinstance(call, schema.JumpFalseCall) and call.destination_instruction <= number
    }

    def jump(number: int) -> schema.JumpFalseCall | None:
        call = calls[number] if 0 <= number < len(calls) else None
        return call if isinstance(call, schema.JumpFalseCall) else None

    def blocks(start: int, end: int, depth: int, inside: int = -1) -> tuple[Block, ...]:
        if depth > MAX_NESTING:
            raise UnsupportedError(
                f"instruction {start} is inside more than {MAX_NESTING} branches and loops"
            )
        found: list[Block] = []
        at = start
        while at < end:
            last = loops.get(at, -1)
            if at < last < end and last != inside:
                closing = jump(last)
                assert closing is not None
                found.append(Loop(last, closing.cond_value_index, blocks(at, last, depth + 1, inside=last)))
                at = last + 1
                continue
            opening = jump(at)
            if opening is None:
                found.append(PlainInstruction(at))
                at += 1
                continue
            middle = opening.destination_instruction
            skip = jump(middle - 1)
            if not at < middle <= end or skip is None or not _never(values[skip.cond_value_index].val):
                raise UnsupportedError(
                    f"instruction {at} jumps to {middle}, which is neither a branch nor a loop"
                )
            after = skip.destination_instruction
            if not middle <= after <= end:
                raise UnsupportedError(f"instruction {middle - 1} jumps to {after}, out of its branch")
            then, otherwise = blocks(at + 1, middle - 1, depth + 1), blocks(middle, after, depth + 1)
            found.append(Branch(at, opening.cond_value_index, then, otherwise))
            at = after
        return tuple(found)

    return blocks(0, len(calls), 0)


def _never(value: object) -> bool:
    return isinstance(value, schema.Bool) and not value.bool_val


def lower_branch(lowering: Lowering, branch: Branch) -> None:
    where = f"instruction {branch.number}"
    condition = lowering.condition(branch.condition)
    if not isinstance(condition, (SymInt, Tensor)):
        lowering.run_blocks(branch.then if condition else branch.otherwise)
        return
    lowering.budget.add_steps(len(lowering.bindings.values) // 16)
    before = lowering.bindings.copy()
    first = len(lowering.graph.nodes)
    if isinstance(condition, SymInt):
        opposite = lowering.symint(f"not {condition.name}")
        lowering.node("sym_not", [condition, opposite], where)
        with lowering.only_when(condition, where):
            lowering.run_blocks(branch.then)
        then, lowering.bindings = lowering.bindings, before
        with lowering.only_when(opposite, where):
            lowering.run_blocks(branch.otherwise)
    else:
        lowering.run_blocks(branch.then)
        then, lowering.bindings = lowering.bindings, before
        lowering.run_blocks(branch.otherwise)
        _refuse_mutation(lowering, first, where)
    # A value that a branch has written is the branch's value in calls that take the branch.
    otherwise = lowering.bindings.values
    for index, value in then.values.items():
        other = otherwise.get(index)
        if other is None:
            otherwise[index] = value
        elif other is not value:
            _choose(lowering, index, condition, value, other, where)


def _choose(lowering: Lowering, index: int, condition: SymInt | Tensor, a: Arg, b: Arg, where: str) -> None:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        out = lowering.write_tensor(index)
        name = "aten.where.self" if isinstance(condition, Tensor) else "pteron.choose"
        lowering.node(name, [condition, a, b, out], where)
    elif isinstance(condition, SymInt):
        lowering.node("sym_ite", [condition, a, b, lowering.write_symint(index)], where)
    else:
        raise UnsupportedError(
            "a branch that is decided on the GPU returns an integer, but the host needs its value"
        )


def _refuse_mutation(lowering: Lowering, first: int, where: str) -> None:
    for node in lowering.graph.nodes[first:]:
        if node.mutates:
            raise UnsupportedError(
                f"{where} branches on a tensor that is computed on the GPU, and {node.label} in it changes "
                f"{node.mutates[0].name}: such a branch must have no side effects"
            )


def lower_loop(lowering: Lowering, loop: Loop) -> None:
    """Unroll a counted loop: `count = count + 1; done = count == size; repeat unless done`."""
    where = f"instruction {loop.number}"
    size = lowering.loop_size(loop)
    largest = lowering.largest(size)
    if largest is None or largest > MAX_ITERATIONS:
        raise UnsupportedError(
            f"the loop that ends at {where} needs a count that is known and at most {MAX_ITERATIONS}"
        )
    lowering.loop_counts.append(size)
    lowering.run_blocks(loop.body)
    for count in range(1, largest):
        if isinstance(size, int):
            lowering.run_blocks(loop.body)
            continue
        goes_on = lowering.symint(f"{count}<{size.name}")
        lowering.node("lt", [count, size, goes_on], where)
        with lowering.only_when(goes_on, where):
            lowering.run_blocks(loop.body)
    lowering.loop_counts.pop()
