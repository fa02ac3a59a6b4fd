"""The live points of a method: the shapes of its inputs, and the integers that its plans depend on.

A frozen program has a plan for each of a finite number of points. An integer that kernels read from a uniform
buffer is not part of a point: it may have any value. An integer that changes plans is part of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import TypeAlias

from pteron.compiler.ir.live import Live
from pteron.compiler.ir.sizes import FreeSize, Size
from pteron.compiler.ir.values import Graph, Shape, SymInt, Tensor, ValueId
from pteron.compiler.plan.dynamic import find_sizes
from pteron.compiler.plan.sweep import LiveGraph
from pteron.errors import InputError, UnsupportedError

# Each point is planned, stored and loaded. A point of a large program costs more.
MOST_POINTS = 16384
MOST_NODE_PLANS = 2_000_000


# The sizes to freeze: of every dynamic dimension, or of each dimension of some inputs by name. An integer has
# one list: its values. It is an input, or an element of one, such as `n[0]`.
Stated: TypeAlias = "Collection[int] | Mapping[str, Sequence[Collection[int]]]"
Dims: TypeAlias = "list[tuple[ValueId, int]]"


@dataclass(frozen=True, slots=True)
class Axis:
    """Dimensions (input, dimension) that change together, and the sizes that they may have together."""

    dims: tuple[tuple[ValueId, int], ...]
    sizes: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Integers:
    """The integers that a call gives: inputs, and elements of inputs."""

    moving: list[SymInt]  # kernels read them; no plan depends on them
    planning: list[SymInt]  # plans depend on them

    @classmethod
    def of(cls, live: LiveGraph) -> Integers:
        found = [port.value for port in live.graph.inputs if isinstance(port.value, SymInt)]
        found += [element.symint for element in live.graph.elements]
        planning = [symint for symint in found if live.planned_by(symint.id)]
        return cls([symint for symint in found if symint not in planning], planning)


def most_points(graph: Graph) -> int:
    return min(MOST_POINTS, MOST_NODE_PLANS // max(1, len(graph.nodes)))


def live_points(
    live: LiveGraph, integers: Integers, stated: Stated | None = None
) -> Iterator[dict[ValueId, Live]]:
    """Every point that the program accepts, as the changes of a sweep, which is at the point meanwhile.

    stated: the sizes that dynamic dimensions may have. Default: all.
    """
    graph = live.graph
    if isinstance(stated, Mapping):
        _check_stated(graph, stated)
    axes = choose_axes(live, stated)
    still: dict[ValueId, Live] = dict.fromkeys((symint.id for symint in integers.moving), 0)
    accepted = 0
    planning = [(symint, _values(graph, symint, stated)) for symint in integers.planning]
    if any(values is None and _is_unbounded(live, symint) for symint, values in planning):
        raise _too_many(live, axes, integers.planning)
    for chosen in product(*(axis.sizes for axis in axes)):
        for changes in _with_integers(live, {**still, **_shapes(graph, axes, chosen)}, planning):
            accepted += 1
            if accepted > most_points(graph):
                raise _too_many(live, axes, integers.planning)
            yield changes
    if not accepted:
        raise InputError(
            "the program accepts none of the stated sizes: give others, or leave them out to freeze all"
        )


def choose_axes(live: LiveGraph, stated: Stated | None) -> list[Axis]:
    """Each free size alone; if these are too many points, dimensions of one largest size together."""
    by_free = find_sizes(live).together
    separate = [_axis(live.graph, free, uses, stated) for free, uses in by_free.items()]
    if _count(separate) <= most_points(live.graph):
        return separate
    by_most: dict[int, Dims] = {}
    for value, dim, size in (use for uses in by_free.values() for use in uses):
        by_most.setdefault(size.values[-1], []).append((value, dim))
    together = [_tied(live.graph, dims, stated) for dims in by_most.values()]
    if _count(together) > most_points(live.graph):
        raise _too_many(live, together, [])
    return together


def _axis(
    graph: Graph, free: FreeSize, uses: Sequence[tuple[ValueId, int, Size]], stated: Stated | None
) -> Axis:
    """The dimensions whose sizes follow from a free size."""
    allowed = [_sizes(graph, value, dim, stated) for value, dim, _ in uses]
    sizes = [tuple(size.where(value) for _, _, size in uses) for value in free.values]
    kept = [own for own in sizes if all(n in some for n, some in zip(own, allowed, strict=True))]
    return Axis(tuple((value, dim) for value, dim, _ in uses), tuple(kept))


def _tied(graph: Graph, dims: Dims, stated: Stated | None) -> Axis:
    """Dimensions that always have the same size."""
    shared = set.intersection(*(_sizes(graph, value, dim, stated) for value, dim in dims))
    return Axis(tuple(dims), tuple((size,) * len(dims) for size in sorted(shared)))


def _check_stated(graph: Graph, stated: Mapping[str, Sequence[Collection[int]]]) -> None:
    """Refuse names that are no inputs, and lists that are too short or too long."""
    ports = {port.name: port.max_shape for port in graph.inputs if isinstance(port.value, Tensor)}
    integers = {port.name for port in graph.inputs if isinstance(port.value, SymInt)}
    integers |= {stated_name(element.symint, graph) for element in graph.elements}
    for name, lists in stated.items():
        if name not in ports and name not in integers:
            raise InputError(
                f"--live names {name}, but the inputs are {', '.join([*ports, *sorted(integers)])}"
            )
        wanted = 1 if name in integers else len(ports[name])
        if len(lists) != wanted:
            shape = "" if name in integers else f" (at most {tuple(ports[name])})"
            raise InputError(
                f"--live {name}=... has {len(lists)} lists of sizes, but {name} needs {wanted}{shape}: "
                f"one for each dimension, with commas between them"
            )


def _sizes(graph: Graph, value: ValueId, dim: int, stated: Stated | None) -> set[int]:
    """The sizes that a dimension may have."""
    port = next(p for p in graph.inputs if isinstance(p.value, Tensor) and p.value.id == value)
    size = None if port.sizes is None else port.sizes[dim]
    every = set(size.values if isinstance(size, Size) else range(port.max_shape[dim] + 1))
    if isinstance(stated, Mapping):
        stated = stated[port.name][dim] if port.name in stated else None
    return every if stated is None else every & set(stated)


def _count(axes: Sequence[Axis]) -> int:
    return prod(len(axis.sizes) for axis in axes)


def _shapes(graph: Graph, axes: Sequence[Axis], chosen: Sequence[Shape]) -> dict[ValueId, Live]:
    shapes = {p.value.id: list(p.value.max_shape) for p in graph.inputs if isinstance(p.value, Tensor)}
    for axis, sizes in zip(axes, chosen, strict=True):
        for (value, dim), size in zip(axis.dims, sizes, strict=True):
            shapes[value][dim] = size
    return {value: tuple(shape) for value, shape in shapes.items()}


def _values(graph: Graph, symint: SymInt, stated: Stated | None) -> list[int] | None:
    """The stated values of an integer; None: all that the program accepts."""
    name = stated_name(symint, graph)
    if not isinstance(stated, Mapping) or name not in stated:
        return None
    return sorted(stated[name][0])


def _is_unbounded(live: LiveGraph, symint: SymInt) -> bool:
    """Whether the program accepts so large a value that not all smaller ones can be frozen."""
    try:
        live.preview({symint.id: most_points(live.graph)})
        return True
    except InputError:
        return False


def _with_integers(
    live: LiveGraph, changes: dict[ValueId, Live], integers: Sequence[tuple[SymInt, list[int] | None]]
) -> Iterator[dict[ValueId, Live]]:
    """The values of the integers that the program accepts at these shapes.

    Without stated values they are a range that begins at 0 or 1, and ends before the first that is refused.
    """
    if not integers:
        try:
            live.sweep(changes)
        except InputError:
            return
        yield changes
        return
    (first, stated), *rest = integers
    for value in range(most_points(live.graph) + 1) if stated is None else stated:
        accepted = False
        for point in _with_integers(live, {**changes, first.id: value}, rest):
            accepted = True
            yield point
        if stated is None and not accepted and value > 0:
            return


def _too_many(live: LiveGraph, axes: Sequence[Axis], planning: Sequence[SymInt]) -> UnsupportedError:
    sizes = " x ".join(str(len(axis.sizes)) for axis in axes if len(axis.sizes) > 1)
    if not planning:
        return UnsupportedError(
            f"the program cannot be frozen at every live shape: its dynamic dimensions have {sizes} sizes, "
            f"and the limit is {most_points(live.graph)} plans: state the sizes that you need with --live"
        )
    reasons = "; ".join(_reason(live, symint) for symint in planning)
    example = f"--live '{stated_name(planning[0], live.graph)}=0-15'"
    return UnsupportedError(
        f"the program cannot be frozen: {reasons}. For all live shapes, these are more than "
        f"{most_points(live.graph)} plans: state sizes and values with --live (for example {example}), "
        f"export a smaller context, or run the engine itself in the browser, with Pyodide"
    )


def _reason(live: LiveGraph, symint: SymInt) -> str:
    first, *others = live.planned_by(symint.id)
    more = f" and {len(others)} more node{'s' * (len(others) > 1)}" if others else ""
    return f"{first.label}{more} must be planned again for each value of {name_of(symint, live.graph)}"


def stated_name(symint: SymInt, graph: Graph) -> str:
    """The name by which the values of an integer are stated: of an input, or `n[0]` for an element of one."""
    for port in graph.inputs:
        if port.value is symint:
            return port.name
        for element in graph.elements:
            if element.symint is symint and element.source is port.value:
                return f"{port.name}[{element.index}]"
    return symint.name


def name_of(symint: SymInt, graph: Graph) -> str:
    """An integer in the words of a caller: an input, or an element of one."""
    for port in graph.inputs:
        if port.value is symint:
            return f"the integer {port.name}"
    for element in graph.elements:
        names = [port.name for port in graph.inputs if port.value is element.source]
        if element.symint is symint and names:
            return f"element {element.index} of {names[0]}"
    return f"the integer {symint.name}"
