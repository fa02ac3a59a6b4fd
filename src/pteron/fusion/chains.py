"""Chains of elementwise operators become one kernel.

The kernel is rendered from the records that the operators' own kernels are rendered from, so every
elementwise operator takes part. Each step leaves what its tensor would hold: integers wrap, and float16 is
rounded.
Broadcasting commutes with elementwise work: the chain is evaluated at the shape of its result.
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
from pteron.ops.elementwise import Elementwise, ElementwiseRule, as_f32, as_i32, walks, whole_operands
from pteron.ops.shapes import broadcast

PLACES = "abcd"  # the inputs of the kernel
MOST_SCALARS = 16
MOST_STEPS = 64  # longer chains gain nothing, and take long to find and to compile


class ChainStep(NamedTuple):
    """One operator of a chain."""

    expression: str
    scalars: tuple[Scalar, ...]
    integer: bool
    operands: tuple[str, ...]  # inputs of the chain, `a` to `d`, or results of steps, `t0`, `t1` and so on
    dtype: str  # of the result


@op("pteron.chain")
def chain(inputs: tuple[LiveTensor, ...], steps: Unused, out: LiveTensor) -> Dispatch:
    """Elementwise steps over the inputs. The last step's result is the output."""
    listed = tuple(ChainStep(*step) for step in cast(Sequence[Sequence[Any]], steps))
    out.resize(broadcast(*(x.shape for x in inputs)))
    padded = {name: inputs[min(i, len(inputs) - 1)] for i, name in enumerate(PLACES)}
    params = {
        "quads": quads(out.numel),
        **walks(out.shape, padded),
        **whole_operands(out, padded),
        "scalars": tuple(_bits(value, step.integer) for step in listed for value in step.scalars),
    }
    defines = {"INPUTS": len(inputs)}
    return Dispatch(
        "chain", {**padded, "y": out}, params, threads(quads(out.numel)), defines, compose(listed)
    )


@cache
def compose(steps: tuple[ChainStep, ...]) -> str:
    """The WGSL of a chain: a function for each step, and `apply`, which calls them in order."""
    types = {name: f"{name}_t4" for name in PLACES}
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
    parameters = ", ".join(f"{name}: {name}_t4" for name in PLACES)
    body = f"fn apply({parameters}) -> y_t4 {{ {' '.join(calls)} return t{len(steps) - 1}; }}"
    return "\n".join([*functions, body])


_DTYPES = {dtype.label: dtype for dtype in DType}


def _bits(value: Scalar, integer: bool) -> int:
    """A scalar as the kernel gets it. In the text of the shader a driver might reorder sums around it."""
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
    for last in reversed(links.values()):  # from the end: a chain is found by its last operator, whole
        if last.node.index not in gone:
            chain = _grow(last, links, uses)
            if len(chain) > 1:
                replacements[last.node.index] = _replacement(chain)
                gone.update(link.node.index for link in chain)
    return rebuild(graph, replacements)


def _grow(last: Link, links: Mapping[ValueId, Link], uses: Uses) -> list[Link]:
    """The links that lead to `last` and to nothing else, as many as the kernel has room for."""
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
    return len(chain) <= MOST_STEPS and scalars <= MOST_SCALARS and len(_inputs(chain)) <= len(PLACES)


def _inputs(chain: list[Link]) -> list[Tensor]:
    made = {link.out.id for link in chain}
    return list(dict.fromkeys(x for link in chain for x in link.operands if x.id not in made))


def _replacement(chain: list[Link]) -> Replacement:
    inputs = _inputs(chain)
    names = {x.id: name for x, name in zip(inputs, PLACES, strict=False)}
    names |= {link.out.id: f"t{i}" for i, link in enumerate(chain)}
    steps = tuple(link.step(names) for link in chain)
    nodes = tuple(link.node for link in chain)
    return Replacement("pteron.chain", (tuple(inputs), steps, chain[-1].out), nodes)


def _link(node: Node, uses: Uses) -> Link | None:
    """A node as a link: an elementwise operator whose tensors do not change and whose scalars are known."""
    rule = node.op.rule
    if not isinstance(rule, ElementwiseRule) or node.when is not None:
        return None
    tensors = [value for value in (*node.reads, *node.writes) if isinstance(value, Tensor)]
    if len(tensors) < len(node.reads) + 1 or not all(map(uses.is_settled, tensors)):
        return None
    try:
        function = rule.describe(*node.args)
    except (OpError, ArithmeticError):
        return None  # its own rule will refuse it, and say why
    return None if function is None else Link(node, function, rule.operands(node.args), tensors[-1])
