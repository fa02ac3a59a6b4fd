"""The sizes and integers that a call may choose: one control for each, with its range.

Dimensions that can only change together, such as the length of tokens and of their mask, have one control.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pteron.errors import InputError
from pteron.ir.live import Live
from pteron.ir.values import Graph, Port, SymInt, Tensor, ValueId
from pteron.plan.dynamic import dynamic_dims
from pteron.plan.sweep import LiveGraph

# The range of an integer that no kernel limits.
LARGEST_INTEGER = 255


@dataclass(frozen=True, slots=True)
class Control:
    """A size or an integer that the user may choose."""

    name: str
    low: int
    high: int
    value: int  # the value at the start
    dims: tuple[tuple[ValueId, int], ...] = ()  # the dimensions of inputs that have this size
    integers: tuple[ValueId, ...] = ()  # the SymInts that have this value


def find_controls(live: LiveGraph) -> list[Control]:
    """The controls of a method: first the sizes, then the integers."""
    return [*_sizes(live), *_integers(live.graph)]


def changes_for(graph: Graph, controls: list[Control], chosen: Mapping[str, int]) -> dict[ValueId, Live]:
    """What to tell the sweep. Controls that are not chosen have their value at the start."""
    unknown = chosen.keys() - {control.name for control in controls}
    if unknown:
        known = ", ".join(control.name for control in controls) or "none"
        raise InputError(f"there is no size {sorted(unknown)[0]!r}; the sizes are: {known}")
    changes: dict[ValueId, Live] = {
        port.value.id: port.max_shape for port in graph.inputs if isinstance(port.value, Tensor)
    }
    for control in controls:
        value = chosen.get(control.name, control.value)
        for tensor, dim in control.dims:
            shape = changes[tensor]
            assert isinstance(shape, tuple)
            if not control.low <= value <= control.high:
                raise InputError(f"{control.name} is {value}, expected {control.low} to {control.high}")
            changes[tensor] = (*shape[:dim], value, *shape[dim + 1 :])
        for symint in control.integers:
            changes[symint] = value
    return changes


def within_guards(live: LiveGraph, controls: list[Control]) -> list[Control]:
    """The controls, with the ranges of integers that the current plans allow."""
    low: dict[ValueId, int] = {}
    high: dict[ValueId, int] = {}
    for plan in live.plans:
        for guard in plan.guards if plan else ():
            low[guard.value] = max(low.get(guard.value, guard.low), guard.low)
            high[guard.value] = min(high.get(guard.value, guard.high), guard.high)

    def limited(control: Control) -> Control:
        known = [i for i in control.integers if i in high]
        if not known:
            return control
        return replace(
            control, low=max(0, *(low[i] for i in known)), high=max(0, min(high[i] for i in known))
        )

    return [limited(control) for control in controls]


def _sizes(live: LiveGraph) -> list[Control]:
    graph = live.graph
    dims = dynamic_dims(graph, live)
    ports = [p for p in graph.inputs if p.resizable and isinstance(p.value, Tensor)]
    found = [(port, dim) for port in ports for dim in dims.get(_id(port), ())]
    alone = [_control([item]) for item in found if _moves_alone(live, *item)]
    free = {dim for control in alone for dim in control.dims}
    tied: dict[int, list[tuple[Port, int]]] = {}
    for port, dim in found:
        if (_id(port), dim) not in free:
            tied.setdefault(port.max_shape[dim], []).append((port, dim))
    return [*map(_control, tied.values()), *alone]


def _moves_alone(live: LiveGraph, port: Port, dim: int) -> bool:
    shape = port.max_shape
    try:
        live.preview({_id(port): (*shape[:dim], shape[dim] - 1, *shape[dim + 1 :])})
    except InputError:
        return False
    return True


def _control(items: list[tuple[Port, int]]) -> Control:
    port, dim = items[0]
    most = port.max_shape[dim]
    name = " = ".join(f"{port.name}[{dim}]" for port, dim in items)
    return Control(name, 1, most, most, tuple((_id(port), dim) for port, dim in items))


def _integers(graph: Graph) -> list[Control]:
    """Integer inputs, and elements of inputs that the program uses as integers."""
    found: dict[str, list[ValueId]] = {
        port.name: [port.value.id] for port in graph.inputs if isinstance(port.value, SymInt)
    }
    names = {_id(port): port.name for port in graph.inputs if isinstance(port.value, Tensor)}
    for element in graph.elements:
        name = f"{names.get(element.source.id, element.source.name)}[{element.index}]"
        found.setdefault(name, []).append(element.symint.id)
    return [Control(name, 0, LARGEST_INTEGER, 0, (), tuple(ids)) for name, ids in found.items()]


def _id(port: Port) -> ValueId:
    assert isinstance(port.value, Tensor)
    return port.value.id
