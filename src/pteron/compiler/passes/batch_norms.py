"""Fold batch norms with constant statistics into constants, which are computed at upload.

After a convolution, the norm becomes a part of its weight and its bias. Elsewhere it becomes a product and a
sum with a constant for each channel, which can be steps of a chain.
"""

from __future__ import annotations

from pteron.compiler.ir.dtypes import DType
from pteron.compiler.ir.values import BatchNorm, Constant, Folded, Graph, Node, Tensor
from pteron.compiler.passes.edit import Replacement, Uses, growable, rebuild

NORM = "aten._native_batch_norm_legit_no_training.default"
CONVOLUTION = "aten.convolution.default"


def fuse(graph: Graph) -> Graph:
    uses = Uses(graph)
    graph = growable(graph)
    replacements: dict[int, Replacement | list[Replacement]] = {}
    for node in graph.nodes:
        norm = _constants_of(node, uses)
        if norm is None:
            continue
        convolution = _convolution_before(node, uses)
        if convolution is not None:
            replacements[node.index] = _folded_convolution(graph, convolution, node, norm)
        else:
            replacements[node.index] = _product_and_sum(graph, node, norm)
    return rebuild(graph, replacements)


def _constants_of(node: Node, uses: Uses) -> BatchNorm | None:
    """The constants of a batch norm whose other results nothing reads."""
    if node.name != NORM or node.when is not None:
        return None
    x, weight, bias, mean, variance, _, eps, outs = node.args
    named = [t for t in (weight, bias, mean, variance) if t is not None]
    constant = all(isinstance(t.constant, Constant) and uses.is_settled(t) for t in named)
    unread = not any(uses.readers[t.id] or uses.is_output(t) for t in outs[1:])
    floats = {t.dtype for t in (*named, x, outs[0])} == {DType.float32}
    if not (constant and unread and floats and uses.is_settled(x) and uses.is_settled(outs[0])):
        return None
    return BatchNorm(weight, bias, mean, variance, eps)


def _convolution_before(node: Node, uses: Uses) -> Node | None:
    """The convolution with constant weights whose result only this norm reads."""
    x = node.args[0]
    found = uses.writer.get(x.id)
    if found is None or found.name != CONVOLUTION or found.when is not None or uses.is_output(x):
        return None
    image, weight, bias, _, _, _, transposed, *_ = found.args
    stored = [t for t in (weight, bias) if t is not None]
    fits = (
        len(uses.readers[x.id]) == 1
        and not transposed
        and len(x.max_shape) == len(weight.max_shape)  # with a batch: dimension 1 has the channels
        and all(isinstance(t.constant, Constant) and uses.is_settled(t) for t in stored)
        and {t.dtype for t in (*stored, image)} == {DType.float32}
        and uses.is_settled(image)
    )
    return found if fits else None


def _folded_convolution(graph: Graph, convolution: Node, node: Node, norm: BatchNorm) -> Replacement:
    x, weight, bias, *rest, _ = convolution.args
    factors = Folded(weight, 0, norm, is_added=False)
    new_weight = graph.tensor(weight.dtype, weight.max_shape, f"{weight.name}.normed", factors)
    shifts = Folded(bias, 0, norm, is_added=True)
    new_bias = graph.tensor(weight.dtype, norm.mean.max_shape, f"{weight.name}.shift", shifts)
    args = (x, new_weight, new_bias, *rest, node.args[-1][0])
    return Replacement(CONVOLUTION, args, (convolution, node))


def _product_and_sum(graph: Graph, node: Node, norm: BatchNorm) -> list[Replacement]:
    x, out = node.args[0], node.args[-1][0]
    shape = (norm.mean.max_shape[0], *[1] * (len(x.max_shape) - 2))

    def constant(name: str, is_added: bool) -> Tensor:
        folded = Folded(None, 0, norm, is_added)
        return graph.tensor(x.dtype, shape, f"{norm.mean.name}.{name}", folded)

    scaled = graph.tensor(x.dtype, x.max_shape, f"{out.name}.scaled")
    return [
        Replacement("aten.mul.Tensor", (x, constant("factor", False), scaled), (node,)),
        Replacement("aten.add.Tensor", (scaled, constant("shift", True), 1, out), (node,)),
    ]
