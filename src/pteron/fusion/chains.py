"""Chains of elementwise operators become one kernel.

The kernel is made of the very functions that the operators would run by themselves, so nothing is
written twice and every float operator with one or two operands takes part. Broadcasting commutes
with elementwise work: the chain is evaluated at the shape of its result.
"""

from __future__ import annotations

import math
import re
from functools import cache
from typing import Any

from pteron.fusion.edit import Replacement, Uses, rebuild
from pteron.ir.checks import OpError
from pteron.ir.dispatch import Dispatch, quads, threads
from pteron.ir.dtypes import DType
from pteron.ir.kinds import Unused
from pteron.ir.live import LiveTensor
from pteron.ir.op import find, op
from pteron.ir.values import Arg, Graph, Node, Tensor, ValueId, values_in
from pteron.ops import elementwise
from pteron.ops.elementwise import walks
from pteron.ops.shapes import broadcast

MOST_INPUTS = 4
MOST_STEPS = 64  # longer chains gain nothing, and take long to find and to compile
KERNELS = {"unary": ("x",), "binary": ("a", "b")}  # and the operands of their `apply`
PLACES = "abcd"


@op("pteron.chain")
def chain(inputs: tuple[LiveTensor, ...], steps: Unused, out: LiveTensor) -> Dispatch:
    """Elementwise steps over the inputs: (operator, arguments), where "$i" is input i and "%i" is step i."""
    shape = broadcast(*(x.shape for x in inputs))
    out.resize(shape)
    padded = {name: inputs[min(i, len(inputs) - 1)] for i, name in enumerate(PLACES)}
    params = {
        "quads": quads(out.numel),
        **walks(shape, **padded),
        **{f"{name}_same": int(x.numel == out.numel) for name, x in padded.items()},
    }
    defines = {"INPUTS": len(inputs)}
    return Dispatch("chain", {**padded, "y": out}, params, threads(quads(out.numel)), defines, compose(steps))


@cache
def compose(steps: Any) -> str:
    """The WGSL of a chain: a function for each step, and `apply`, which calls them in order."""
    functions, calls = [], []
    for number, (name, args) in enumerate(steps):
        text, operands = step_function(name, args)
        functions.append(text.replace("fn apply(", f"fn step{number}("))
        calls.append(f"let t{number} = step{number}({', '.join(map(_spell, operands))});")
    takes = ", ".join(f"{name}: vec4<f32>" for name in PLACES)
    body = f"fn apply({takes}) -> y_t4 {{ {' '.join(calls)} return y_t4(t{len(steps) - 1}); }}"
    return "\n".join([*functions, body])


def _spell(operand: str) -> str:
    return PLACES[int(operand[1:])] if operand[0] == "$" else f"t{operand[1:]}"


@cache
def step_function(name: str, args: tuple[Any, ...]) -> tuple[str, list[str]]:
    """The function an operator would run on floats, its scalars filled in, and its operands in order."""
    spec = find(name)
    assert spec is not None
    stands_for: dict[int, str] = {}

    def view(arg: Any) -> Any:
        if isinstance(arg, str) and arg[:1] in "$%":
            live = LiveTensor(Tensor(ValueId(0), DType.float32, (), arg), (), [])
            stands_for[id(live)] = arg
            return live
        return arg

    views = [view(arg) for arg in args]  # held, so that their ids stay theirs
    dispatch = spec.rule(*views, LiveTensor(Tensor(ValueId(0), DType.float32, (), "out"), (), []))
    if not isinstance(dispatch, Dispatch) or dispatch.kernel not in KERNELS:
        raise OpError(f"{name} is not elementwise")
    text = re.sub(r"\b[xaby]_t4\b", "vec4<f32>", dispatch.code)
    text = re.sub(r"\bp\.(s\d)\b", lambda m: _literal(dispatch.params[m.group(1)]), text)
    return text, [stands_for[id(dispatch.bindings[operand])] for operand in KERNELS[dispatch.kernel]]


def _literal(value: Any) -> str:
    if not math.isfinite(value):
        raise OpError("WGSL has no literal for what is not finite")
    return f"f32({float(value)!r})"


def fuse(graph: Graph) -> Graph:
    uses = Uses(graph)
    replacements: dict[int, Replacement] = {}
    gone: set[int] = set()
    for node in reversed(graph.nodes):  # from the end: a chain is found by its last operator, whole
        if node.index not in gone and _is_elementwise(node, uses):
            found = _grow(node, uses)
            if len(found) > 1:
                replacements[node.index] = _replacement(found)
                gone.update(each.index for each in found)
    return rebuild(graph, replacements)


def _grow(last: Node, uses: Uses) -> list[Node]:
    """The nodes that lead to `last` and to nothing else, as many as the kernel has inputs for."""
    chain = [last]
    while True:
        known = {node.index for node in chain}
        inside = {node.writes[0].id for node in chain}
        for tensor in dict.fromkeys(v for node in chain for v in node.reads if isinstance(v, Tensor)):
            source = uses.writer.get(tensor.id)
            if source is None or tensor.id in inside or not _is_elementwise(source, uses):
                continue
            if any(reader.index not in known for reader in uses.readers[tensor.id]) or uses.is_output(tensor):
                continue
            grown = sorted([*chain, source], key=lambda node: node.index)
            if len(grown) <= MOST_STEPS and len(_inputs(grown)) <= MOST_INPUTS:
                chain = grown
                break
        else:
            return chain


def _inputs(chain: list[Node]) -> list[Tensor]:
    made = {node.writes[0].id for node in chain}
    read = (v for node in chain for v in node.reads if isinstance(v, Tensor) and v.id not in made)
    return list(dict.fromkeys(read))


def _replacement(chain: list[Node]) -> Replacement:
    inputs = _inputs(chain)
    names = {t.id: f"${i}" for i, t in enumerate(inputs)}
    names |= {node.writes[0].id: f"%{i}" for i, node in enumerate(chain)}
    steps = tuple((node.name, _step_args(node, names)) for node in chain)
    return Replacement("pteron.chain", (tuple(inputs), steps, chain[-1].args[-1]), tuple(chain))


def _step_args(node: Node, names: dict[ValueId, str]) -> tuple[Arg, ...]:
    return tuple(names[arg.id] if isinstance(arg, Tensor) else arg for arg in node.args[:-1])


def _is_elementwise(node: Node, uses: Uses) -> bool:
    """Whether a node can be a step: floats in, floats out, every scalar known."""
    if node.op.rule.__module__ != elementwise.__name__:
        return False  # other rules look at shapes, and a step is asked for without any
    if node.when is not None or len(node.writes) != 1:
        return False
    tensors = [value for arg in node.args for value in values_in(arg)]
    if not all(isinstance(t, Tensor) and t.dtype.is_float and uses.is_settled(t) for t in tensors):
        return False
    if any(isinstance(arg, tuple) for arg in node.args):
        return False
    names = {value.id: "$0" for value in node.reads}
    try:
        step_function(node.name, _step_args(node, names))
    except OpError:
        return False  # one of three operands, a conversion, or a scalar that WGSL cannot spell
    return True
