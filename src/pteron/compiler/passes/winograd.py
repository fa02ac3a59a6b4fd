"""Convolutions of large images by windows of 3 x 3 get the filters of Winograd's algorithm.

These are four times as large.
"""

from __future__ import annotations

from pteron.compiler.ir.dtypes import DType
from pteron.compiler.ir.values import Graph, Node, Tensor, ValueId, WinogradFilters, numel
from pteron.compiler.ir.winograd import FACTORS
from pteron.compiler.ops.winograd import ALL, LAYOUT, tiles_of
from pteron.compiler.passes.edit import Replacement, Uses, growable, rebuild

CONVOLUTIONS = ("pteron.packed_convolution", "pteron.convolution_with_epilogue")
MIN_CHANNELS = 32  # in and out: with fewer, the transforms take longer than they save
MIN_TILES = 40  # of all images: with fewer, reading the filters takes longer
MAX_NBYTES = 2**27  # of transformed images: every WebGPU device can bind this much


def fuse(graph: Graph) -> Graph:
    uses = Uses(graph)
    graph = growable(graph)
    made: dict[ValueId, Tensor] = {}
    replacements: dict[int, Replacement] = {}
    for node in graph.nodes:
        if not _suits(node, uses):
            continue
        x, weight, *rest = node.args
        if weight.id not in made:
            ins, _, _, outs = weight.max_shape
            shape = (ins, FACTORS, FACTORS, outs)
            made[weight.id] = graph.tensor(
                weight.dtype, shape, f"{weight.name}.winograd", WinogradFilters(weight), LAYOUT
            )
        replacements[node.index] = Replacement(node.name, (x, made[weight.id], *rest), (node,))
    return rebuild(graph, replacements)


def _suits(node: Node, uses: Uses) -> bool:
    if node.name not in CONVOLUTIONS:
        return False
    x, weight, bias, stride, _, dilation, groups, *_, out = node.args
    tensors = [t for t in (x, weight, bias, out) if isinstance(t, Tensor)]
    ones = {*stride, *dilation, groups}
    if weight.max_shape[1:-1] != (3, 3) or ones != {1} or {t.dtype for t in tensors} != {DType.float32}:
        return False
    if weight.constant is None or weight.layout or not uses.is_settled(weight):
        return False
    channels = weight.max_shape[0], weight.max_shape[-1]
    tiles = numel(out.max_shape[:-3]) * numel(tiles_of(out.max_shape[-2:]))
    nbytes = 4 * ALL * max(channels) * tiles
    return min(channels) >= MIN_CHANNELS and tiles >= MIN_TILES and nbytes <= MAX_NBYTES
