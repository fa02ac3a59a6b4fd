"""Replace nodes of a graph. The other nodes keep their order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pteron.compiler import ops
from pteron.compiler.ir.values import Arg, Graph, Node, Tensor, ValueId


def growable(graph: Graph) -> Graph:
    """The same graph. A pass may add tensors to it."""
    return replace(graph, values=list(graph.values))


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


def _node(index: int, new: Replacement) -> Node:
    origin = " + ".join(f"{node.name} ({node.origin})" for node in new.replaces)
    when = new.replaces[0].when
    return ops.known(new.name).node(new.args, origin, index=index, when=when, replaces=new.replaces)


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

    def only_reader(self, tensor: Tensor) -> Node | None:
        """The only reader of a tensor that is no output. It runs in every call."""
        readers = self.readers[tensor.id]
        alone = len(readers) == 1 and readers[0].when is None and not self.is_output(tensor)
        return readers[0] if alone else None

    def is_settled(self, tensor: Tensor) -> bool:
        """Whether the tensor is written only once. Then a later read gives the same values."""
        return tensor.id not in self._moving
