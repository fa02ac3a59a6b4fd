"""Every size and integer of a graph as a formula of what a call gives, derived from the operators' rules.

A rule runs on traced numbers (`traced.py`). One run gives formulas for all points at which its comparisons
give the same answers. So it runs once more for the points that are left, until none is. If runs give
different formulas of a value, it gets one that is right at all points. If there is none, it gets a name of
its own, whose value at each point is known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from pteron.compiler.ir.checks import OpError
from pteron.compiler.ir.formula import Formula, as_formula
from pteron.compiler.ir.live import Live, LiveTensor
from pteron.compiler.ir.values import Node, Tensor, Value, ValueId
from pteron.compiler.plan.dependencies import planning_values
from pteron.compiler.plan.sweep import LiveGraph
from pteron.compiler.plan.traced import Path, Traced, formula_of

Point: TypeAlias = dict[str, int]  # the values of names
Sized: TypeAlias = tuple[Formula, ...]  # the sizes of a tensor, or an integer


@dataclass(slots=True)
class RuleRun:
    """What a rule gives at the points where its comparisons give the same answers."""

    points: list[Point]
    results: list[Sized]  # of its outputs; empty: it refuses


class Formulas:
    """The formulas of a graph's values.

    values: by value, the sizes of a tensor, or one formula of an integer.
    points: those of the given points that no rule refuses.
    """

    def __init__(self, live: LiveGraph, inputs: Mapping[ValueId, Sized], points: Sequence[Point]) -> None:
        self.points = list(points)
        self.values: list[Sized] = [
            tuple(map(as_formula, value.max_shape)) if isinstance(value, Tensor) else ()
            for value in live.graph.values
        ]
        self._live = live
        self._known: dict[Any, list[Sized]] = {}
        self._own_names = 0
        for value, sizes in inputs.items():
            self.values[value] = sizes
        for node in live.graph.nodes:
            self._derive(node)

    def _derive(self, node: Node) -> None:
        """Set the formulas of a node's outputs. Nodes of one form that read equal formulas share them."""
        read = tuple(self.values[value] for value in planning_values(node))
        key = self._live.form(node.index), read
        if key not in self._known:
            varies = any(size.constant is None for sizes in read for size in sizes)
            self._known[key] = self._combined(
                node, self._runs(node, self.points if varies else self.points[:1])
            )
        for value, sizes in zip(node.writes, self._known[key], strict=True):
            self.values[value.id] = sizes

    def _runs(self, node: Node, left: list[Point]) -> list[RuleRun]:
        runs = []
        while left:
            path = Path()
            try:
                results = self._results(node, left[0], path)
            except OpError:
                results = []
            inside = [path.holds(point) for point in left]
            runs.append(RuleRun([p for p, is_in in zip(left, inside, strict=True) if is_in], results))
            left = [p for p, is_in in zip(left, inside, strict=True) if not is_in]
        refused = [id(point) for run in runs if not run.results for point in run.points]
        if refused:
            self.points = [point for point in self.points if id(point) not in refused]
        return [run for run in runs if run.results or not node.writes]

    def _results(self, node: Node, point: Point, path: Path) -> list[Sized]:
        current: dict[ValueId, Live] = {}
        for value in (*node.reads, *node.writes, *([node.when] if node.when else [])):
            sizes = tuple(_traced(size, point, path) for size in self.values[value.id])
            current[value.id] = sizes if isinstance(value, Tensor) else sizes[0] if sizes else None
        if node.when is not None and current[node.when.id] == 0:
            return [_skipped(value) for value in node.writes]
        outputs = self._live.evaluate(node, current).outputs
        return [_sizes(outputs[value.id]) for value in node.writes]

    def _combined(self, node: Node, runs: Sequence[RuleRun]) -> list[Sized]:
        """One formula for each size of the outputs."""
        return [
            tuple(
                self._one([(run.points, run.results[n][dim]) for run in runs])
                for dim in range(len(value.max_shape) if isinstance(value, Tensor) else 1)
            )
            for n, value in enumerate(node.writes)
        ]

    def _one(self, found: Sequence[tuple[list[Point], Formula]]) -> Formula:
        """One formula that is right at all points."""
        formulas = dict.fromkeys(formula for _, formula in found)
        for formula in sorted(formulas, key=lambda formula: formula.constant is not None):
            if all(formula == own or _agree(formula, own, points) for points, own in found):
                return formula
        name = f"#{self._own_names}"
        self._own_names += 1
        for points, formula in found:
            for point in points:
                point[name] = formula.value(point)
        return Formula.name(name)


def _traced(formula: Formula, point: Point, path: Path) -> Any:
    known = formula.constant
    if known is not None:
        return known
    number = formula.value(point)
    return Traced(number, formula, path) if isinstance(number, int) else path.fixed(formula, number)


def _sizes(output: Any) -> Sized:
    return tuple(map(formula_of, output.shape if isinstance(output, LiveTensor) else [output.value]))


def _skipped(value: Value) -> Sized:
    return tuple(map(as_formula, value.max_shape if isinstance(value, Tensor) else (0,)))


def _agree(one: Formula, other: Formula, points: Sequence[Point]) -> bool:
    return all(one.value(point) == other.value(point) for point in points)
