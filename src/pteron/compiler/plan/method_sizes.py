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
from pteron.compiler.ir.sizes import FreeSize, Size
from pteron.compiler.ir.values import SymInt, Tensor, ValueId, numel
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
    domain = Domain.of(live, found)
    formulas = domain.derive(live, MOST_POINTS)
    known = [tuple(map(_public, sizes)) for sizes in formulas.values]
    for counted in live.graph.counts:  # its length depends on data
        known[counted] = (None, *known[counted][1:])
    every = not domain.integers and domain.count <= MOST_POINTS
    return MethodSizes(known, len(formulas.points), every)


@dataclass(frozen=True, slots=True)
class Domain:
    """What a call may choose, by name: the numbers that sizes follow from, and integers.

    inputs: the formulas of input tensors and of integers. integers: the names of integers.
    """

    sizes: dict[str, FreeSize]
    integers: dict[ValueId, str]
    inputs: dict[ValueId, Sized]

    @classmethod
    def of(cls, live: LiveGraph, found: DynamicSizes) -> Domain:
        sizes = {free.name: free for free in found.together}
        integers = {symint.id: name for symint, name in given_integers(live, sizes)}
        inputs: dict[ValueId, Sized] = {
            value: tuple(as_formula(n.formula if isinstance(n, Size) else n) for n in own)
            for value, own in found.inputs.items()
        }
        return cls(sizes, integers, inputs | {i: (Formula.name(name),) for i, name in integers.items()})

    @property
    def count(self) -> int:
        """The number of points that sizes have."""
        return prod(len(free.values) for free in self.sizes.values())

    def derive(self, live: LiveGraph, most: int, integers: Sequence[int] = INTEGERS) -> Formulas:
        """Run the rules at up to about so many points. integers: the values to try of integers."""
        ranges: dict[str, Sequence[int]] = {name: free.values for name, free in self.sizes.items()}
        ranges |= dict.fromkeys(self.integers.values(), integers)
        return Formulas(live, self.inputs, list(_points(ranges, most)))


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
        index = 0 if numel(element.source.max_shape) == 1 else element.index
        yield element.symint, f"{names.get(source, element.source.name)}[{index}]"


def _points(ranges: dict[str, Sequence[int]], most: int) -> Iterator[Point]:
    """All points; if these are too many, the largest, each name moved alone, and random ones."""
    names, values = list(ranges), list(ranges.values())
    if prod(map(len, values)) <= most:
        yield from (dict(zip(names, point, strict=True)) for point in product(*(v[::-1] for v in values)))
        return
    largest = {name: own[-1] for name, own in ranges.items()}
    smallest = {name: own[min(1, len(own) - 1)] for name, own in ranges.items()}
    each = most // (4 * len(names))
    chosen = [largest, smallest]
    for name, own in ranges.items():
        chosen += [{**others, name: value} for others in (largest, smallest) for value in _some(own, each)]
    numbers = random.Random(0)
    chosen += [{name: numbers.choice(own) for name, own in ranges.items()} for _ in range(most // 2)]
    yield from ({**point} for point in {tuple(p.items()): p for p in chosen}.values())


def _some(values: Sequence[int], count: int) -> list[int]:
    """About so many values: the smallest, near the largest, and between."""
    between = range(0, len(values), max(1, len(values) // max(1, count)))
    places = {0, 1, 2, len(values) - 2, len(values) - 1, *between}
    return [values[place] for place in sorted(places) if 0 <= place < len(values)]


def _public(size: Formula) -> Formula | None:
    """The formula, if it needs no names that `Formulas` has made."""
    return None if any(name.startswith("#") for name in size.names) else size
