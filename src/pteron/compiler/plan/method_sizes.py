"""The sizes of a method's inputs and outputs, as formulas of the numbers that a call chooses.

forward(x[1, n <= 128, 64]) -> y[1, 2*n + 1, 64]
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from pteron.compiler.ir.formula import Formula, as_formula
from pteron.compiler.ir.sizes import Size
from pteron.compiler.ir.values import SymInt, Tensor, ValueId
from pteron.compiler.plan.dynamic import DynamicSizes
from pteron.compiler.plan.formulas import Formulas, Point, Sized
from pteron.compiler.plan.sweep import LiveGraph

# Up to so many points, all are tried. Of more, some.
MOST_POINTS = 64
INTEGERS = (0, 1, 2, 5)  # values to try of integers that a call gives


@dataclass(frozen=True, slots=True)
class MethodSizes:
    """The sizes of a method's tensors as formulas, derived from the operators' rules.

    tried: the number of points at which the rules were asked. all_tried: whether there are no others.
    """

    by_value: list[tuple[Formula | None, ...]]  # None: no formula gives this size
    tried: int
    all_tried: bool

    def of(self, value: object) -> tuple[Formula | None, ...]:
        """The sizes of a tensor. An integer has one formula."""
        return self.by_value[value.id] if isinstance(value, (Tensor, SymInt)) else ()

    def texts(self, tensor: Tensor, dims: Collection[int] = ()) -> tuple[str, ...]:
        """Each size as text. dims: the dimensions that may be smaller, to mark those without a formula."""
        return tuple(
            str(size) if size is not None else f"<={most}" if dim in dims else str(most)
            for dim, (size, most) in enumerate(zip(self.of(tensor), tensor.max_shape, strict=True))
        )

    @property
    def certainty(self) -> str:
        """How the formulas of outputs are known, in words."""
        where = "all" if self.all_tried else "some"
        return f"derived from the rules of the operators, at {where} sizes ({self.tried} tried)"


def method_sizes(live: LiveGraph, found: DynamicSizes) -> MethodSizes:
    """Derive the sizes of all tensors."""
    graph = live.graph
    inputs: dict[ValueId, Sized] = {
        value: tuple(as_formula(n.formula if isinstance(n, Size) else n) for n in sizes)
        for value, sizes in found.inputs.items()
    }
    taken = {free.name for free in found.together}
    integers = {symint.id: name for symint, name in given_integers(live, taken)}
    inputs |= {value: (Formula.name(name),) for value, name in integers.items()}
    ranges: dict[str, Sequence[int]] = {free.name: free.values for free in found.together}
    ranges |= dict.fromkeys(integers.values(), INTEGERS)
    points = list(_points(ranges))
    formulas = Formulas(live, inputs, points)
    every = not integers and len(points) == prod(map(len, ranges.values()))
    known = [tuple(map(_public, sizes)) for sizes in formulas.values]
    for counted in graph.counts:  # its length depends on data
        known[counted] = (None, *known[counted][1:])
    return MethodSizes(known, len(formulas.points), every)


def given_integers(live: LiveGraph, taken: Collection[str] = ()) -> Iterator[tuple[SymInt, str]]:
    """The integers that a call gives: inputs, and elements of inputs, such as `position[0]`.

    taken: names of sizes. An integer has another name.
    """
    for port in live.graph.inputs:
        if isinstance(port.value, SymInt):
            yield port.value, f"{port.name}_" if port.name in taken else port.name
    names = {port.value.id: port.name for port in live.graph.inputs if isinstance(port.value, Tensor)}
    for element in live.graph.elements:
        source = live.layout.storage[element.source.id]
        yield element.symint, f"{names.get(source, element.source.name)}[{element.index}]"


def _points(ranges: dict[str, Sequence[int]]) -> Iterator[Point]:
    """All points; if these are many, the largest, each name moved alone, all together, and random ones."""
    names, values = list(ranges), list(ranges.values())
    if prod(map(len, values)) <= MOST_POINTS:
        yield from (dict(zip(names, point, strict=True)) for point in product(*(v[::-1] for v in values)))
        return
    largest = {name: own[-1] for name, own in ranges.items()}
    chosen = [largest]
    for name, own in ranges.items():
        chosen += [{**largest, name: value} for value in _some(own)]
    for share in range(4):
        chosen.append({name: _some(own)[share % len(_some(own))] for name, own in ranges.items()})
    numbers = random.Random(0)
    chosen += [{name: numbers.choice(own) for name, own in ranges.items()} for _ in range(MOST_POINTS // 2)]
    yield from ({**point} for point in {tuple(p.items()): p for p in chosen}.values())


def _some(values: Sequence[int]) -> list[int]:
    """Some values: the smallest, near the largest, and between."""
    places = {0, 1, 2, len(values) // 4, len(values) // 2, len(values) - 2}
    return [values[place] for place in sorted(places) if 0 <= place < len(values)]


def _public(size: Formula) -> Formula | None:
    """The formula, if it needs no names that `Formulas` has made."""
    return None if any(name.startswith("#") for name in size.names) else size
