"""Fuse chains of elementwise operators into one kernel.

The kernel is made from the `Elementwise` records of the operators, so every elementwise operator can be part
of a chain.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pteron.compiler.ir.values import Graph, Node, Tensor, ValueId
from pteron.compiler.ops.chain import INPUT_NAMES, MAX_SCALARS, ChainStep
from pteron.compiler.ops.elementwise import Elementwise, function_of
from pteron.compiler.passes.edit import Replacement, Uses, rebuild

MAX_STEPS = 64  # longer chains are not faster, and take long to find and to compile


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
    found = function_of(node)
    if found is None or node.when is not None:
        return None
    tensors = [value for value in (*node.reads, *node.writes) if isinstance(value, Tensor)]
    if len(tensors) < len(node.reads) + 1 or not all(map(uses.is_settled, tensors)):
        return None
    function, operands = found
    if function.takes_two_words(tensor.dtype for tensor in tensors):
        return None
    return Link(node, function, operands, tensors[-1])
