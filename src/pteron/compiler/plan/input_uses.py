"""Inputs whose contents matter before a call: elements that become integers, and indices."""

from __future__ import annotations

from pteron.compiler.ir.values import Element, Tensor, ValueId, numel
from pteron.compiler.plan.sweep import LiveGraph
from pteron.errors import UnsupportedError


def input_elements(live: LiveGraph) -> list[Element]:
    """The elements that become integers, as positions in the inputs that their tensors are views of."""
    return [_in_input(element, live) for element in live.graph.elements]


def _in_input(element: Element, live: LiveGraph) -> Element:
    ports = {port.value.id: port for port in live.graph.inputs if isinstance(port.value, Tensor)}
    root = live.graph.values[live.layout.storage[element.source.id]]
    if root.id not in ports:
        raise UnsupportedError(
            f"the program reads an element of {element.source} as an integer, but the GPU computes it: "
            "only an element of an input is known before the program runs"
        )
    assert isinstance(root, Tensor)
    if root is element.source:
        return element
    return Element(element.symint, root, -1, _flat_index(element, ports[root.id].resizable))


def _flat_index(element: Element, is_dynamic: bool) -> int:
    """The index in row-major order of an element of a view, where it is the same at all live shapes."""
    shape, dim, index = element.source.max_shape, element.dim, element.index
    if dim < 0 or index == 0:
        return index
    if not is_dynamic:
        return index % shape[dim] * numel(shape[dim + 1 :])
    if numel(shape[dim + 1 :]) != 1 or (index < 0 and numel(shape[:dim]) != 1):
        raise UnsupportedError(
            f"the program reads element {index} of dimension {dim} of {element.source} as an integer. "
            "This is a view of an input, so the place depends on the live shape: read the input itself"
        )
    return index


def index_inputs(live: LiveGraph) -> list[tuple[int, ValueId, int]]:
    """The inputs that are used as indices: (node, tensor in the rule, input number)."""
    places = {p.value.id: n for n, p in enumerate(live.graph.inputs) if isinstance(p.value, Tensor)}
    roots = live.layout.storage
    return [
        (index, tensor.id, places[roots[tensor.id]])
        for index in live.indexing
        for tensor in live.graph.nodes[index].reads
        if isinstance(tensor, Tensor) and roots[tensor.id] in places
    ]
