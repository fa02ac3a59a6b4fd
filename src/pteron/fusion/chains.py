"""Fuse chains of elementwise operators into one kernel.

The kernel is made from the `Elementwise` records of the operators, so every elementwise operator can be part
of a chain. Each step gives the value that its tensor would contain: integers wrap, and float16 is rounded.
All steps are computed at the shape of the result. This is correct because an elementwise operator gives the
same values before and after broadcasting.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import count
from typing import Any, NamedTuple, cast

from pteron.fusion.edit import Replacement, Uses, rebuild
from pteron.ir.checks import OpError
from pteron.ir.dispatch import Dispatch, quads, threads
from pteron.ir.dtypes import DType
from pteron.ir.kinds import Scalar, Unused
from pteron.ir.live import LiveTensor
from pteron.ir.op import op
from pteron.ir.values import Graph, Node, Tensor, ValueId
from pteron.ops.elementwise import (
    Elementwise,
    ElementwiseRule,
    as_f32,
    as_i32,
    broadcast_params,
)
from pteron.ops.shapes import broadcast

INPUT_NAMES = "abcd"
MAX_SCALARS = 16
MAX_STEPS = 64  # longer chains are not faster, and take long to find and to compile


class ChainStep(NamedTuple):
    """One operator of a chain."""

    expression: str
    scalars: tuple[Scalar, ...]
    integer: bool
    operands: tuple[str, ...]  # inputs of the chain, `a` to `d`, or results of steps, `t0`, `t1` and so on
    dtype: str  # of the result


@op("pteron.chain")
def chain(inputs: tuple[LiveTensor, ...], steps: Unused, out: LiveTensor) -> Dispatch:
    """Compute elementwise steps. The result of the last step is the output."""
    listed = tuple(ChainStep(*step) for step in cast(Sequence[Sequence[Any]], steps))
    out.resize(broadcast(*(x.shape for x in inputs)))
    padded = {name: inputs[min(i, len(inputs) - 1)] for i, name in enumerate(INPUT_NAMES)}
    params = {
        "quads": quads(out.numel),
        **broadcast_params(out.shape, padded),
        "scalars": tuple(_bits(value, step.integer) for step in listed for value in step.scalars),
    }
    defines = {"INPUTS": len(inputs)}
    return Dispatch(
        "chain", {**padded, "y": out}, params, threads(quads(out.numel)), defines, compose(listed)
    )


@cache
def compose(steps: tuple[ChainStep, ...]) -> str:
    """The WGSL of a chain: a function for each step, and `apply`, which calls these functions in order."""
    types = {name: f"{name}_t4" for name in INPUT_NAMES}
    places = count()
    functions, calls = [], []
    for number, step in enumerate(steps):
        dtype = _DTYPES[step.dtype]
        types[f"t{number}"] = "vec4<f32>" if dtype.is_float else "vec4<i32>"
        function = Elementwise(step.expression, step.scalars, step.integer)
        takes = [types[operand] for operand in step.operands]
        kind = "i32" if step.integer else "f32"
        numbers = [next(places) for _ in step.scalars]
        scalars = [f"bitcast<{kind}>(p.scalars[{i // 4}][{i % 4}])" for i in numbers]
        functions.append(function.wgsl(f"step{number}", takes, types[f"t{number}"], scalars))
        call = f"step{number}({', '.join(step.operands)})"
        calls.append(f"let t{number} = {call if dtype.itemsize == 4 else f'as_{dtype}({call})'};")
    parameters = ", ".join(f"{name}: {name}_t4" for name in INPUT_NAMES)
    body = f"fn apply({parameters}) -> y_t4 {{ {' '.join(calls)} return t{len(steps) - 1}; }}"
    return "\n".join([*functions, body])


_DTYPES = {dtype.label: dtype for dtype in DType}


def _bits(value: Scalar, integer: bool) -> int:
    """The bits of a scalar parameter. A literal in the shader text could make the driver reorder sums."""
    packed = struct.pack("<i", as_i32(value)) if integer else struct.pack("<f", as_f32(value))
    return int.from_bytes(packed, "little")


@dataclass(frozen=True, slots=True)
class Link:
    """A node that can be a step of a chain."""

    node: Node
    function: Elementwise
    operands: list[Tensor]
    out: Tensor

    def step(self, names: Mapping[ValueId, str]) -> ChainStep:
        operands = tuple(names[x.id] for x in self.operands)
        function = self.function
        return ChainStep(
            function.expression, function.scalars, function.integer, operands, self.out.dtype.label
        )


def fuse(graph: Graph) -> Graph:
    uses = Uses(graph)
    links = {link.out.id: link for node in graph.nodes if (link := _link(node, uses))}
    replacements: dict[int, Replacement] = {}
    gone: set[int] = set()
    for last in reversed(links.values()):  # a chain grows from its last operator
        if last.node.index not in gone:
            chain = _grow(last, links, uses)
            if len(chain) > 1:
                replacements[last.node.index] = _replacement(chain)
                gone.update(link.node.index for link in chain)
    return rebuild(graph, replacements)


def _grow(last: Link, links: Mapping[ValueId, Link], uses: Uses) -> list[Link]:
    """All links whose results only the chain of `last` reads, within the limits of the kernel."""
    chain = [last]
    while True:
        known = {link.node.index for link in chain}
        for tensor in _inputs(chain):
            source = links.get(tensor.id)
            if source is None or uses.is_output(tensor):
                continue
            if any(reader.index not in known for reader in uses.readers[tensor.id]):
                continue
            grown = sorted([*chain, source], key=lambda link: link.node.index)
            if _fits(grown):
                chain = grown
                break
        else:
            return chain


def _fits(chain: list[Link]) -> bool:
    scalars = sum(len(link.function.scalars) for link in chain)
    return len(chain) <= MAX_STEPS and scalars <= MAX_SCALARS and len(_inputs(chain)) <= len(INPUT_NAMES)


def _inputs(chain: list[Link]) -> list[Tensor]:
    made = {link.out.id for link in chain}
    return list(dict.fromkeys(x for link in chain for x in link.operands if x.id not in made))


def _replacement(chain: list[Link]) -> Replacement:
    inputs = _inputs(chain)
    names = {x.id: name for x, name in zip(inputs, INPUT_NAMES, strict=False)}
    names |= {link.out.id: f"t{i}" for i, link in enumerate(chain)}
    steps = tuple(link.step(names) for link in chain)
    nodes = tuple(link.node for link in chain)
    return Replacement("pteron.chain", (tuple(inputs), steps, chain[-1].out), nodes)


def _link(node: Node, uses: Uses) -> Link | None:
    """A node as a link, if it is elementwise, its tensors are written once and its scalars are fixed."""
    rule = node.op.rule
    if not isinstance(rule, ElementwiseRule) or node.when is not None:
        return None
    tensors = [value for value in (*node.reads, *node.writes) if isinstance(value, Tensor)]
    if len(tensors) < len(node.reads) + 1 or not all(map(uses.is_settled, tensors)):
        return None
    try:
        function = rule.describe(*node.args)
    except (OpError, ArithmeticError):
        return None  # the rule of the operator raises the error when the graph is planned
    return None if function is None else Link(node, function, rule.operands(node.args), tensors[-1])
