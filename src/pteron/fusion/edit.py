"""Replace nodes of a graph. The other nodes keep their order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from pteron.ir import op as registry
from pteron.ir.values import Arg, Graph, Node, Tensor, ValueId, values_in


@dataclass(frozen=True, slots=True)
class Replacement:
    """A node that replaces one or more nodes. It has the condition (`when`) of the first of them."""

    name: str
    args: tuple[Arg, ...]
    replaces: tuple[Node, ...]


def rebuild(graph: Graph, replacements: Mapping[int, Replacement | Sequence[Replacement]]) -> Graph:
    """The graph with replacements. The key is the index of the node whose position they get."""
    new = {index: [r] if isinstance(r, Replacement) else r for index, r in replacements.items()}
    gone = {node.index for rs in new.values() for r in rs for node in r.replaces}
    nodes: list[Node] = []
    for node in graph.nodes:
        if node.index in new:
            for each in new[node.index]:
                nodes.append(_node(len(nodes), each))
        elif node.index not in gone:
            nodes.append(replace(node, index=len(nodes)))
    return replace(graph, nodes=nodes)


def drop_unread(before: Graph, after: Graph, unneeded: Collection[int]) -> Graph:
    """`after` without the nodes that nothing reads any more, out of the `unneeded` nodes of `before`.

    A node that changes a tensor in place stays: what it writes is read in a later call.
    """
    written = {value.id for index in unneeded for value in before.nodes[index].writes}
    needed = {value.id for value in after.results}
    kept: list[Node] = []
    for node in reversed(after.nodes):
        ids = {value.id for value in node.writes}
        if not node.mutates and ids <= written and not ids & needed:
            continue
        needed |= {value.id for value in node.reads}
        kept.append(node)
    return replace(after, nodes=[replace(node, index=i) for i, node in enumerate(reversed(kept))])


def _node(index: int, new: Replacement) -> Node:
    spec = registry.find(new.name)
    assert spec is not None
    reads = tuple(value for arg in new.args[:-1] for value in values_in(arg))
    origin = " + ".join(f"{node.name} ({node.origin})" for node in new.replaces)
    return Node(
        index,
        new.name,
        spec,
        new.args,
        reads,
        spec.outputs(new.args),
        spec.mutated(new.args),
        origin,
        new.replaces[0].when,
        new.replaces,
    )


class Uses:
    """The readers and the writer of every value. A pass checks them before it moves a node."""

    def __init__(self, graph: Graph) -> None:
        self.readers: dict[ValueId, list[Node]] = defaultdict(list)
        self.writer: dict[ValueId, Node] = {}
        self._outputs = {tensor.id for tensor in graph.results}
        self._moving = {t.id for t in graph.states}
        for node in graph.nodes:
            for value in dict.fromkeys(node.reads):
                self.readers[value.id].append(node)
            for value in node.writes:
                if value.id in self.writer:
                    self._moving.add(value.id)
                self.writer[value.id] = node
            self._moving.update(t.id for t in node.mutates)

    def is_output(self, tensor: Tensor) -> bool:
        return tensor.id in self._outputs

    def is_settled(self, tensor: Tensor) -> bool:
        """Whether the tensor is written only once. Then a later read gives the same values."""
        return tensor.id not in self._moving
