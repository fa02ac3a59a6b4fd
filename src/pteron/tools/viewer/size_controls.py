"""The sizes and integers that a call may choose: one control for each, with its range.

Dimensions that can only change together, such as the length of tokens and of their mask, have one control.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pteron.compiler.ir.live import Live
from pteron.compiler.ir.sizes import Size
from pteron.compiler.ir.values import Graph, Port, SymInt, Tensor, ValueId
from pteron.compiler.plan.dynamic import find_sizes
from pteron.compiler.plan.sweep import LiveGraph
from pteron.errors import InputError

# The range of an integer that no kernel limits.
LARGEST_INTEGER = 255


@dataclass(frozen=True, slots=True)
class Control:
    """A size or an integer that the user may choose."""

    name: str
    low: int
    high: int
    step: int
    value: int  # the value at the start
    dims: tuple[tuple[ValueId, int, Size], ...] = ()  # the dimensions of inputs whose size depends on it
    integers: tuple[ValueId, ...] = ()  # the SymInts that have this value


def find_controls(live: LiveGraph) -> list[Control]:
    """The controls of a method: first the sizes, then the integers."""
    return [*_sizes(live), *_integers(live.graph)]


def changes_for(graph: Graph, controls: list[Control], chosen: Mapping[str, int]) -> dict[ValueId, Live]:
    """Return the changes for the sweep. Controls that are not chosen have their value at the start."""
    unknown = chosen.keys() - {control.name for control in controls}
    if unknown:
        known = ", ".join(control.name for control in controls) or "none"
        raise InputError(f"there is no size {sorted(unknown)[0]!r}; the sizes are: {known}")
    changes: dict[ValueId, Live] = {
        port.value.id: port.max_shape for port in graph.inputs if isinstance(port.value, Tensor)
    }
    for control in controls:
        value = chosen.get(control.name, control.value)
        for tensor, dim, size in control.dims:
            shape = changes[tensor]
            assert isinstance(shape, tuple)
            if not control.low <= value <= control.high:
                raise InputError(f"{control.name} is {value}, expected {control.low} to {control.high}")
            changes[tensor] = (*shape[:dim], size.at(value), *shape[dim + 1 :])
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
    """A control for each number that a call may choose: the largest size that follows from it."""
    names = {port.value.id: port.name for port in live.graph.inputs if isinstance(port.value, Tensor)}
    together = sorted(find_sizes(live).together.values(), key=len, reverse=True)
    return [_control(dims, names) for dims in together]


def _control(dims: list[tuple[ValueId, int, Size]], names: Mapping[ValueId, str]) -> Control:
    largest = max((size for _, _, size in dims), key=lambda size: size.values[-1])
    values = largest.values[largest.values[0] == 0 :] or largest.values
    name = " = ".join(f"{names[value]}[{dim}]" for value, dim, size in dims if size == largest)
    return Control(name, values[0], values[-1], largest.values.step, values[-1], tuple(dims))


def _integers(graph: Graph) -> list[Control]:
    """Integer inputs, and elements of inputs that the program uses as integers."""
    found: dict[str, list[ValueId]] = {
        port.name: [port.value.id] for port in graph.inputs if isinstance(port.value, SymInt)
    }
    names = {_id(port): port.name for port in graph.inputs if isinstance(port.value, Tensor)}
    for element in graph.elements:
        name = f"{names.get(element.source.id, element.source.name)}[{element.index}]"
        found.setdefault(name, []).append(element.symint.id)
    return [Control(name, 0, LARGEST_INTEGER, 1, 0, (), tuple(ids)) for name, ids in found.items()]


def _id(port: Port) -> ValueId:
    assert isinstance(port.value, Tensor)
    return port.value.id
