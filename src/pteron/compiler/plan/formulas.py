"""Every size and integer of a graph as a formula of what a call gives, derived from the operators' rules.

A rule runs on traced numbers (`traced.py`). One run gives formulas for all points at which its comparisons
give the same answers. So it runs once more for the points that are left, until none is. If runs give
different formulas of a value, it gets one that is right at all points. If there is none, it gets a name of
its own, whose value at each point is known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from pteron.compiler.ir.checks import OpError
from pteron.compiler.ir.formula import Formula, as_formula
from pteron.compiler.ir.live import Live
from pteron.compiler.ir.values import Node, Tensor, ValueId
from pteron.compiler.plan.dependencies import planning_values
from pteron.compiler.plan.node_plan import NodePlan
from pteron.compiler.plan.sweep import LiveGraph
from pteron.compiler.plan.traced import Path, Traced, formula_of

Point: TypeAlias = dict[str, int]  # the values of names
Sized: TypeAlias = tuple[Formula, ...]  # the sizes of a tensor, or an integer


@dataclass(slots=True)
class RuleRun:
    """What a rule gives at the points where its comparisons give the same answers."""

    path: Path
    plan: NodePlan | None  # its numbers are traced; None: the rule refuses
    refusal: str = ""
    results: list[Sized] = field(default_factory=list)  # the sizes and integers of the outputs, in order
    points: list[Point] = field(default_factory=list)


class Formulas:
    """The formulas of a graph's values.

    values: by value, the sizes of a tensor, or one formula of an integer.
    runs: for each node, the node whose rule was run, and the runs. Nodes of one form share them.
    points: those of the given points that no rule refuses.
    """

    def __init__(self, live: LiveGraph, inputs: Mapping[ValueId, Sized], points: Sequence[Point]) -> None:
        self.points = list(points)
        self.values: list[Sized] = [
            tuple(map(as_formula, value.max_shape)) if isinstance(value, Tensor) else ()
            for value in live.graph.values
        ]
        self.runs: list[tuple[Node, list[RuleRun]]] = []
        self._live = live
        self._known: dict[Any, tuple[tuple[Node, list[RuleRun]], list[Sized]]] = {}
        self._own_names = 0
        for value, sizes in inputs.items():
            self.values[value] = sizes
        for node in live.graph.nodes:
            self._derive(node)

    def _derive(self, node: Node) -> None:
        """Run the rule of a node. Nodes of one form that read equal formulas share what it gives."""
        read = tuple(self.values[value] for value in planning_values(node))
        key = self._live.form(node.index), read
        if key not in self._known:
            varies = any(size.constant is None for sizes in read for size in sizes)
            runs = self._run(node, self.points if varies else self.points[:1])
            self._known[key] = (node, runs), self._combined(node, [run for run in runs if run.plan])
        shared, made = self._known[key]
        self.runs.append(shared)
        for value, sizes in zip(node.writes, made, strict=True):
            self.values[value.id] = sizes

    def _run(self, node: Node, left: list[Point]) -> list[RuleRun]:
        runs = []
        while left:
            run = self._run_at(node, left[0])
            runs.append(run)
            inside = [run.path.holds(point) for point in left]
            run.points = [point for point, is_in in zip(left, inside, strict=True) if is_in]
            left = [point for point, is_in in zip(left, inside, strict=True) if not is_in]
        refused = {id(point) for run in runs if not run.plan for point in run.points}
        if refused:
            self.points = [point for point in self.points if id(point) not in refused]
        return runs

    def _run_at(self, node: Node, point: Point) -> RuleRun:
        path, current = Path(), dict[ValueId, Live]()
        for value in (*node.reads, *node.writes, *([node.when] if node.when else [])):
            sizes = tuple(_traced(size, point, path) for size in self.values[value.id])
            current[value.id] = sizes if isinstance(value, Tensor) else sizes[0] if sizes else None
        try:
            plan = self._live.plan_at(node, current)
        except OpError as error:
            return RuleRun(path, None, str(error))
        results = dict(plan.results)
        return RuleRun(path, plan, results=[_sizes(results[value.id]) for value in node.writes])

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


def _sizes(live: Live) -> Sized:
    return tuple(map(formula_of, live if isinstance(live, tuple) else [live]))


def _agree(one: Formula, other: Formula, points: Sequence[Point]) -> bool:
    return all(one.value(point) == other.value(point) for point in points)
