"""Which dimensions of the inputs a call may make smaller, and which dimensions of the outputs change too.

A file stores only the largest sizes, not which of them may vary. So ask the sweep: a dimension is dynamic
if the sweep accepts a smaller size, for this dimension alone or for all inputs' dimensions of the same size.
This is integer arithmetic in the operators' rules. Nothing runs on a GPU.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from pteron.errors import InputError
from pteron.ir.dispatch import describe
from pteron.ir.live import Live
from pteron.ir.values import Graph, Port, Shape, Tensor, ValueId
from pteron.plan.sweep import LiveGraph

Dim = tuple[ValueId, int]

# Each is tried by a sweep. No exported program has nearly as many; those beyond are taken for static.
MOST_CANDIDATES = 1000


def dynamic_dims(graph: Graph, live: LiveGraph) -> dict[ValueId, tuple[int, ...]]:
    """The dynamic dimensions of each input and output tensor."""
    inputs = {p.value.id: p.value for p in graph.inputs if p.resizable and isinstance(p.value, Tensor)}
    outputs = [p.value for p in graph.outputs if isinstance(p.value, Tensor)]
    candidates = [(i, d) for i, t in inputs.items() for d, size in enumerate(t.max_shape) if size > 1]
    candidates = candidates[:MOST_CANDIDATES]
    found: dict[ValueId, set[int]] = defaultdict(set)

    def accepts(shapes: dict[ValueId, Live]) -> bool:
        try:
            after = live.preview(shapes)
        except InputError:
            return False
        for tensor in outputs:
            shape = after[tensor.id]
            assert isinstance(shape, tuple)
            found[tensor.id].update(d for d, size in enumerate(shape) if size != tensor.max_shape[d])
        return True

    def explore(dims: list[Dim]) -> None:
        changes: dict[ValueId, list[int]] = {}
        for value, dim in dims:
            changes.setdefault(value, list(inputs[value].max_shape))[dim] -= 1
        if accepts({value: tuple(shape) for value, shape in changes.items()}):
            for value, dim in dims:
                found[value].add(dim)

    for candidate in candidates:
        explore([candidate])
    for size in {inputs[i].max_shape[d] for i, d in candidates}:
        together = [(i, d) for i, d in candidates if inputs[i].max_shape[d] == size]
        if any(d not in found[i] for i, d in together):
            explore(together)
    # An output that rounds its size, such as a strided convolution's, may not change with one step: halve
    # too.
    accepts(
        {
            i: tuple(-(-n // 2) if d in found[i] else n for d, n in enumerate(t.max_shape))
            for i, t in inputs.items()
        }
    )
    for counted in graph.counts:
        found[counted].add(0)
    return {value: tuple(sorted(dims)) for value, dims in found.items()}


def explained(error: InputError, live: LiveGraph, changes: Mapping[ValueId, Live]) -> InputError:
    """The error of a sweep. It says so if the exporter made the refused size a constant."""
    for port in live.graph.inputs:
        for dim, size in _changed_dims(port, changes):
            if refusal(live, port, dim) is not None:
                return InputError(_frozen(port, dim, size, error))
    return error


def _changed_dims(port: Port, changes: Mapping[ValueId, Live]) -> Iterator[tuple[int, int]]:
    shape = changes.get(port.value.id) if isinstance(port.value, Tensor) else None
    if isinstance(shape, tuple):
        yield from (
            (d, n) for d, (n, most) in enumerate(zip(shape, port.max_shape, strict=True)) if n != most
        )


def refusal(live: LiveGraph, port: Port, dim: int) -> InputError | None:
    """Why no smaller size is accepted, for this dimension alone or for all dimensions of its size.

    None: the dimension is dynamic.
    """
    assert isinstance(port.value, Tensor)
    most = port.max_shape[dim]
    inputs = [p.value for p in live.graph.inputs if p.resizable and isinstance(p.value, Tensor)]
    first: InputError | None = None
    for size in sorted({most - 1, -(-most // 2), -(-most // 4), 1} - {most}, reverse=True):
        shape = (*port.max_shape[:dim], size, *port.max_shape[dim + 1 :])
        alone: dict[ValueId, Live] = {port.value.id: shape}
        together: dict[ValueId, Live] = {
            t.id: tuple(size if n == most else n for n in t.max_shape) for t in inputs
        }
        for changes in (alone, together):
            try:
                live.preview(changes)
                return None
            except InputError as error:
                first = first or error
    return first


def _frozen(port: Port, dim: int, size: int, error: InputError) -> str:
    return (
        f"{port.name}: dimension {dim} is {size}, but the program runs only at {port.max_shape[dim]}. "
        f"The exporter made this size a constant. The first node that refuses another size: {error}. "
        f"Export the model again, with dimension {dim} of {port.name} in dynamic_shapes"
    )


def check_shape(port: Port, shape: Shape) -> None:
    """Refuse a live shape that an input or output cannot have. This check does not look at the graph."""
    largest = port.max_shape
    if len(shape) != len(largest):
        raise InputError(
            f"{port.name}: expected {len(largest)} dimensions (at most {describe(largest)}), "
            f"got shape {describe(shape)}"
        )
    for d, (size, most) in enumerate(zip(shape, largest, strict=True)):
        if size > most:
            raise InputError(
                f"{port.name}: dimension {d} is {size}, but the program was exported for at most {most}: "
                f"split the input, or export with a larger bound"
            )
        if size != most and not port.resizable:
            raise InputError(
                f"{port.name}: expected shape {describe(largest)}, got {describe(shape)}: "
                "the program was exported with a static shape; export it with dynamic_shapes to vary it"
            )
