"""Fuse linear layers with coded weights with what comes before and after them, on GPUs.

Before: an RMS norm. After: an elementwise function of the results alone, of the two halves of the results (as
in a gated unit), or the sum with another tensor (a residual sum). Each of them would be a kernel of its own,
and a GPU needs microseconds to start one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from pteron.compiler.ir.checks import OpError
from pteron.compiler.ir.dtypes import DType
from pteron.compiler.ir.live import LiveTensor
from pteron.compiler.ir.values import Graph, Node, Tensor, values_in
from pteron.compiler.ops.affine import AffineWeights
from pteron.compiler.ops.chain import ChainStep
from pteron.compiler.ops.elementwise import function_of
from pteron.compiler.ops.fused_affine import fits
from pteron.compiler.passes.edit import Replacement, Uses, rebuild
from pteron.compiler.passes.shape_comparison import ShapeComparison

FUSED = "pteron.fused_affine"
LINEARS = ("pteron.linear_affine.default", "pteron.linears_affine")
NORM, SUM, SUM_AND_NORM, CHAIN = (
    "et_vk.rms_norm.default",
    "aten.add.Tensor",
    "pteron.add_rms_norm",
    "pteron.chain",
)
ADD = (ChainStep("a + b", (), False, ("a", "b"), "float32"),)
MOST_BUFFERS = 8  # storage buffers that every device can bind


class Epilogue(NamedTuple):
    """What is applied to the results of a product."""

    steps: tuple[ChainStep, ...]
    added: Tensor | None
    halves: bool
    out: Tensor
    after: tuple[Replacement, ...]  # what is left of the replaced node


def fuse(graph: Graph) -> Graph:
    return _with_norms(_with_epilogues(graph))


def _with_epilogues(graph: Graph) -> Graph:
    uses, shapes = Uses(graph), ShapeComparison(graph)
    replacements: dict[int, list[Replacement]] = {}
    for node in graph.nodes:
        reader = _reader_of_all(node, uses) if is_product(node, uses) else None
        if reader is None or reader.index in replacements:
            continue
        epilogue = _epilogue(node, reader, shapes)
        if epilogue is None or not _are_plain(uses, epilogue.added, epilogue.out):
            continue
        args = _args(node, None, 0.0, epilogue.steps, epilogue.added, epilogue.halves, (epilogue.out,))
        fused = Replacement(FUSED, args, (node, reader))
        if _buffers(fused.args) <= MOST_BUFFERS:
            replacements[reader.index] = [fused, *epilogue.after]
    return rebuild(graph, replacements)


def _with_norms(graph: Graph) -> Graph:
    uses = Uses(graph)
    replacements: dict[int, Replacement] = {}
    for node in graph.nodes:
        is_fused = node.name == FUSED and node.args[1] is None
        if not is_fused and not is_product(node, uses):
            continue
        x = node.args[0]
        norm = uses.writer.get(x.id)
        if norm is None or norm.name != NORM or norm.when is not None:
            continue
        source, factors, eps, _ = norm.args
        if len(uses.readers[x.id]) > 1 or uses.is_output(x) or not _are_plain(uses, source, factors, x):
            continue
        if is_fused:
            args = (source, factors, eps, *node.args[3:])
        else:
            args = _args(node, factors, eps, (), None, False, _outputs(node))
            args = (source, *args[1:])
        if factors.constant is not None and _buffers(args) <= MOST_BUFFERS:
            replacements[node.index] = Replacement(FUSED, args, (norm, node))
    return rebuild(graph, replacements)


def _epilogue(node: Node, reader: Node, shapes: ShapeComparison) -> Epilogue | None:
    outs = _outputs(node)
    if len(outs) == 2:
        return _of_halves(outs, reader)
    if len(outs) > 2:
        return None
    (result,) = outs
    if reader.name in (SUM, SUM_AND_NORM):
        return _sum(result, reader, shapes)
    steps = _steps(reader, (result,))
    return None if steps is None else Epilogue(steps, None, False, reader.args[-1], ())


def _sum(result: Tensor, reader: Node, shapes: ShapeComparison) -> Epilogue | None:
    a, b, *rest = reader.args
    other = b if a is result else a
    if other is result or not isinstance(other, Tensor) or not shapes.are_alike(other, result):
        return None
    if reader.name == SUM:
        factor, out = rest
        return Epilogue(ADD, other, False, out, ()) if factor == 1 else None
    weight, eps, (total, y) = rest
    return Epilogue(ADD, other, False, total, (Replacement(NORM, (total, weight, eps, y), (reader,)),))


def _of_halves(outs: tuple[Tensor, ...], reader: Node) -> Epilogue | None:
    first, second = outs
    steps = _steps(reader, outs) if first.max_shape == second.max_shape else None
    return None if steps is None else Epilogue(steps, None, True, reader.args[-1], ())


def _steps(reader: Node, operands: tuple[Tensor, ...]) -> tuple[ChainStep, ...] | None:
    """The steps of an elementwise node or a chain that reads just these tensors. It has no scalars."""
    out = reader.args[-1]
    if reader.name == CHAIN:
        inputs, given, _ = reader.args
        steps = tuple(ChainStep(*step) for step in given)
    else:
        found = function_of(reader)
        if found is None:
            return None
        function, inputs = found
        names = tuple("abcd"[i] for i in range(len(inputs)))
        steps = (ChainStep(function.expression, function.scalars, function.integer, names, out.dtype.label),)
    if {t.id for t in inputs} != {t.id for t in operands} or out.max_shape != operands[0].max_shape:
        return None
    order = {t.id: "ab"[i] for i, t in enumerate(operands)}
    renamed = {"abcd"[i]: order[t.id] for i, t in enumerate(inputs)}
    if any(step.scalars or step.integer or step.dtype != "float32" for step in steps):
        return None
    return tuple(
        step._replace(operands=tuple(renamed.get(name, name) for name in step.operands)) for step in steps
    )


def is_product(node: Node, uses: Uses) -> bool:
    """Whether a node is a linear layer that the fused kernels can compute."""
    if node.name not in LINEARS or node.when is not None:
        return False
    x, codes, scales, bits, group, zero, table, bias, _ = node.args
    outs = _outputs(node)
    if not _are_plain(uses, x, bias, *outs) or codes.constant is None:
        return False
    live = [t and LiveTensor(t, t.max_shape, []) for t in (codes, scales, table)]
    try:
        weight = AffineWeights.of_words(live[0], live[1], x.max_shape[-1], bits, group, zero, live[2])
    except OpError:
        return False
    return fits(weight) and all(out.max_shape[-1] % 4 == 0 for out in outs)


def _reader_of_all(node: Node, uses: Uses) -> Node | None:
    """The node that alone reads the results of a product."""
    readers = {reader.index: reader for out in _outputs(node) for reader in uses.readers[out.id]}
    alone = len(readers) == 1 and not any(uses.is_output(out) for out in _outputs(node))
    reader = next(iter(readers.values())) if alone else None
    return reader if reader is not None and reader.when is None and reader.op.alias is None else None


def _args(node: Node, norm: Tensor | None, eps: float, *rest: Any) -> tuple[Any, ...]:
    x, *stored, _ = node.args
    return (x, norm, eps, *stored, *rest)


def _buffers(args: tuple[Any, ...]) -> int:
    return len({value.id for value in values_in(args) if isinstance(value, Tensor)})


def _are_plain(uses: Uses, *tensors: Tensor | None) -> bool:
    return all(t is None or (t.dtype is DType.float32 and uses.is_settled(t)) for t in tensors)


def _outputs(node: Node) -> tuple[Tensor, ...]:
    outs = node.args[-1]
    return outs if isinstance(outs, tuple) else (outs,)
