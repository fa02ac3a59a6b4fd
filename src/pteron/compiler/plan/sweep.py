"""Live shapes, and the sweep that propagates them through the graph.

A call changes the shapes of some inputs, or some SymInts. The sweep visits, in program order, the nodes that
read a changed value. For each, the operator's rule computes the live shapes of the outputs and the
dispatches. Program order is a topological order, so one pass is enough. Plans are cached per node, by the
live values that the rule read. Nodes with the same signature share plans: thirty identical layers are planned
once. If a rule refuses, all changes are undone: a sweep happens completely or not at all.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from math import inf, trunc
from typing import Any, TypeAlias

from pteron.compiler.ir.checks import OpError, unchecked
from pteron.compiler.ir.dispatch import (
    MAX_GROUPS_PER_DIMENSION,
    Dispatch,
    Planned,
    Route,
    Scratch,
    copy_dispatch,
)
from pteron.compiler.ir.live import ContentRule, Guard, Live, LiveInt, LiveResult, LiveTensor
from pteron.compiler.ir.problems import CannotRun, Problem, unsupported
from pteron.compiler.ir.values import Arg, Graph, Node, Shape, SymInt, Tensor, Value, ValueId
from pteron.compiler.plan.deferred_routes import DeferredRoutes
from pteron.compiler.plan.dependencies import consumers, kernel_integers, planning_values, watchers
from pteron.compiler.plan.memory import Layout
from pteron.compiler.plan.node_plan import NodePlan, skipped
from pteron.compiler.plan.refused_by_node import NotPlanned, RefusedByNode
from pteron.compiler.plan.routes import (
    Choice,
    LiveShapes,
    WrongRoutes,
    choose,
    route_key,
    runnable_routes,
    usable_routes,
)
from pteron.compiler.plan.signatures import NodeSignature, signatures
from pteron.errors import InputError, PteronError

Values: TypeAlias = "Sequence[Live] | Mapping[ValueId, Live]"

# A decode loop may re-plan a node at every position. Do not keep all of these plans.
REMEMBERED_PLANS_PER_NODE = 64
REMEMBERED_PLANS = 4096


def plan(
    graph: Graph,
    features: Collection[str] = (),
    choice: Choice | None = None,
    wrong: WrongRoutes | None = None,
) -> LiveGraph:
    """Plan a graph at its largest shape. Raises `CannotRun`, which lists all problems.

    features: of the device, beyond the portable minimum. wrong: routes to avoid on it.
    """
    layout = Layout.of(graph)
    refused = [
        Problem(
            "select_as_symint",
            element.symint.name,
            f"{element.source.name} is computed, but only an element of an input is known before the call",
        )
        for element in graph.elements
        if layout.storage[element.source.id] not in graph.input_ids
    ]
    try:
        live = LiveGraph(graph, layout, features, choice, wrong)
    except CannotRun as error:
        refused += error.problems[graph.name]
    if refused:
        raise unsupported({graph.name: refused})
    return live


class LiveGraph:
    """A graph with its current live shapes and plans."""

    def __init__(
        self,
        graph: Graph,
        layout: Layout,
        features: Collection[str] = (),
        choice: Choice | None = None,
        wrong: WrongRoutes | None = None,
    ) -> None:
        self.graph = graph
        self.layout = layout
        self.features = frozenset(features)
        self.choice = choice
        self.wrong = wrong or {}
        self.late = DeferredRoutes()
        # The wrong routes that nodes have, with the operators of the nodes.
        self.avoided: dict[str, set[str]] = {}
        self.unavoidable: dict[str, set[str]] = {}  # at some shapes, no other route fits
        # The live shape or integer of each value.
        self.current: list[Live] = [v.max_shape if isinstance(v, Tensor) else None for v in graph.values]
        self.plans: list[NodePlan | None] = [None] * len(graph.nodes)
        self.routes: list[list[Route]] = []  # per node, all routes that it may use
        self.content_rules: list[ContentRule] = []  # at the largest shape
        self.indexing: dict[int, None] = {}  # the nodes that have content rules
        self.version = 0  # counts the changes of live values and plans
        self.at: Mapping[ValueId, Live] | None = None  # what the last sweep was for; None: sweep again
        self.contested: set[str] = set()  # the keys of nodes that have several routes on this device
        self.visits = 0  # rules evaluated since load, for tests and measurements
        self.plans_are_complete = False  # refuse what needs a new plan
        self._remembered = REMEMBERED_PLANS_PER_NODE
        self._memo: list[dict[tuple[Live, ...], NodePlan]] = [{} for _ in graph.nodes]
        self._keys = [planning_values(node) for node in graph.nodes]
        self._signatures = signatures(graph, layout)
        self._twins: dict[tuple[Any, ...], tuple[NodeSignature, NodePlan]] = {}  # by form and live values
        self._consumers = consumers(graph, self._keys)
        self._watchers = watchers(graph, self._keys)
        self._ranges: dict[ValueId, tuple[float, float]] = {}  # in which the plans of all watchers are valid
        # The old values (list, position, value) of what a sweep has changed. Empty: no sweep is to be undone.
        self._journal: list[tuple[list[Any], int, Any]] = []
        self._kernel_integers = kernel_integers(graph)
        self._building = True
        self._build()
        self._building = False

    # -- load: the first sweep ----------------------------------------------------------------

    def _build(self) -> None:
        """Plan every node at its largest shape. SymInts whose value depends on the call stay unknown."""
        refused: list[Problem] = []
        for node in self.graph.nodes:
            key = tuple([self.current[i] for i in self._keys[node.index]])
            unknown = None in key
            plan: NodePlan | None = None
            routes: list[Route] = []
            try:
                if unknown or self._is_skipped(node):
                    routes = self._probe(node)
                    plan = None if unknown else skipped(node)
                else:
                    plan, routes = self._apply_rule(node, self.current)
            except OpError as error:
                refused.append(Problem(node.name, f"node {node.index}, {node.origin}", str(error)))
            self.routes.append(routes)
            if plan is None:
                continue
            self.plans[node.index] = plan
            self._memo[node.index][key] = plan
            for value, result in plan.results:
                self.current[value] = result
        if refused:
            raise unsupported({self.graph.name: refused})

    def _probe(self, node: Node) -> list[Route]:
        """The routes of a node that reads an unknown SymInt. Any plausible value shows them."""
        if node.writes and all(isinstance(value, SymInt) for value in node.writes):
            return []
        error = OpError("cannot be planned")
        for seed in (0, 1):
            try:
                with unchecked():
                    return self._apply_rule(node, self.current, seed)[1]
            except OpError as reason:
                error = reason
        raise OpError(f"cannot be planned before a call gives its integers: {error}")

    def integer(self, value: Value) -> int | float | None:
        """The current value of a SymInt; None before the first call that sets it."""
        if not isinstance(value, SymInt):
            raise PteronError(f"{value!r} is not a SymInt")
        live = self.current[value.id]
        assert not isinstance(live, tuple)
        return live

    def shape(self, tensor: Tensor) -> Shape:
        """The live shape of a tensor."""
        shape = self.current[tensor.id]
        assert isinstance(shape, tuple)
        return shape

    def planned_by(self, value: ValueId) -> list[Node]:
        """The nodes whose plans depend on a value. Others at most pass it to their kernels."""
        return [node for node in self.graph.nodes if value in self._keys[node.index]]

    def values_of(self, node: Node) -> tuple[Value, ...]:
        """The values of a node, in an order that is the same for nodes of one form."""
        return self._signatures[node.index].values

    def form(self, node: int) -> int:
        """A number that is equal for nodes whose routes have the same kernels."""
        return self._signatures[node].form

    def scratch(self) -> list[tuple[int, str, int]]:
        """The temporary memory of all routes: (node, name, bytes)."""
        sizes: dict[tuple[int, str], int] = {}
        for node, routes in enumerate(self.routes):
            for route in routes:
                for dispatch in route.dispatches:
                    for bound in dispatch.bindings.values():
                        if isinstance(bound, Scratch):
                            key = (node, bound.name)
                            sizes[key] = max(sizes.get(key, 0), bound.max_nbytes)
        return [(node, name, nbytes) for (node, name), nbytes in sizes.items()]

    # -- calls ----------------------------------------------------------------------------------

    def sweep(self, changes: Mapping[ValueId, Live]) -> None:
        """Propagate changed inputs through the graph, all or nothing."""
        self.begin(changes)
        self.commit(changes)

    def begin(self, changes: Mapping[ValueId, Live]) -> None:
        """Sweep, but do not decide yet: `commit` keeps what has changed, `undo` takes it back.

        If a rule refuses, all is taken back. If this or what follows is interrupted, the next sweep does it.
        """
        try:
            self._sweep(changes)
        except BaseException:
            self.undo()
            raise

    def commit(self, changes: Mapping[ValueId, Live]) -> None:
        """Keep the changes of the sweep that `begin` began."""
        self._journal.clear()
        self.at = changes

    def undo(self) -> None:
        """Take back a sweep that was refused or interrupted. The next sweep does it if this is interrupted.

        Restoring the old values a second time does no harm. So the journal is cleared when all are restored.
        """
        if self._journal:
            self.version += 1
            self._ranges.clear()
            for target, position, old in reversed(self._journal):
                target[position] = old
            self._journal.clear()

    def preview(self, changes: Mapping[ValueId, Live]) -> list[Live]:
        """The live shape of every value after these changes, or an InputError. Nothing changes.

        SymInts that no call has set yet count as 0.
        """
        self.undo()
        roots = self.graph.input_ids | {e.symint.id for e in self.graph.elements}
        unknown: dict[ValueId, Live] = {i: 0 for i in roots if self.current[i] is None}
        try:
            self._sweep({**unknown, **changes})
            return self.current.copy()
        finally:
            self.undo()

    def _sweep(self, changes: Mapping[ValueId, Live]) -> None:
        """Change live shapes and plans. Each change is in the journal before it is made."""
        queue: list[int] = []
        if self.at is None:
            self.undo()
            queue = [node for node, plan in enumerate(self.plans) if plan is None]
        self.at = None
        for value, new in changes.items():
            self._set(value, new, queue)
        previous = -1
        while queue:
            index = heappop(queue)
            if index != previous:  # the same node may be queued by several of its arguments
                self._visit(index, queue)
                previous = index
        for target, changed, _ in self._journal:
            if target is self.current and changed in self._watchers:
                self._check_range(ValueId(changed))

    def _set(self, value: ValueId, new: Live, queue: list[int]) -> None:
        old = self.current[value]
        if old == new:
            return
        if isinstance(new, int) and value in self._kernel_integers and not -(2**31) <= new < 2**31:
            name = self.graph.values[value].name
            raise InputError(f"{name} is {new}, but kernels read it as a 32-bit integer")
        self.version += 1
        self._journal.append((self.current, value, old))
        self.current[value] = new
        for consumer in self._consumers[value]:
            heappush(queue, consumer)

    def _visit(self, index: int, queue: list[int]) -> None:
        node = self.graph.nodes[index]
        live = self.current
        key = tuple([live[i] for i in self._keys[index]])
        plan = self._memo[index].get(key)
        try:
            if plan is None:
                if self.plans_are_complete:
                    raise NotPlanned(node, "it has no plan for these shapes")
                plan = skipped(node) if self._is_skipped(node) else self._plan(node, key)
                self._remember(index, key, plan)
        except OpError as error:
            raise RefusedByNode(node, str(error)) from None
        self._check_guards(node, plan)
        if plan is not self.plans[index]:
            self.version += 1
            self._ranges.clear()
            self._journal.append((self.plans, index, self.plans[index]))
            self.plans[index] = plan
        for value, result in plan.results:
            self._set(value, result, queue)

    def _check_guards(self, node: Node, plan: NodePlan) -> None:
        for guard in plan.guards:
            value = self.current[guard.value]
            if not (isinstance(value, int) and guard.low <= value <= guard.high):
                raise RefusedByNode(node, guard.message.format(value=value))

    def _check_range(self, value: ValueId) -> None:
        """Check an integer that kernels read. The layers of a model have equal guards: one test is enough."""
        number = self.current[value]
        low, high = self._ranges.get(value) or self._range_of(value)
        if not (isinstance(number, int) and low <= number <= high):
            for index in self._watchers[value]:
                plan = self.plans[index]
                assert plan is not None
                self._check_guards(self.graph.nodes[index], plan)

    def _range_of(self, value: ValueId) -> tuple[float, float]:
        plans = [self.plans[index] for index in self._watchers[value]]
        guards = [guard for plan in plans if plan for guard in plan.guards if guard.value == value]
        bounds = max((g.low for g in guards), default=-inf), min((g.high for g in guards), default=inf)
        self._ranges[value] = bounds
        return bounds

    def _plan(self, node: Node, key: tuple[Live, ...]) -> NodePlan:
        signature = self._signatures[node.index]
        twin = self._twins.get((signature.form, *key))
        if twin is not None:
            other, plan = twin
            return plan.for_twin(dict(zip(other.ids, signature.values, strict=True)))
        plan, _ = self._apply_rule(node, self.current)
        if len(self._twins) >= REMEMBERED_PLANS:
            self._twins.clear()
        self._twins[(signature.form, *key)] = signature, plan
        return plan

    def _remember(self, index: int, key: tuple[Live, ...], plan: NodePlan) -> None:
        memo = self._memo[index]
        if len(memo) >= self._remembered:
            memo.clear()
        memo[key] = plan

    def plan_ahead(self, changes: Mapping[ValueId, Live]) -> None:
        """Plan a call before it is made, and keep its plans. Raises InputError if a rule refuses it."""
        self._remembered += 1
        live = self.current
        for plan, memo, values in zip(self.plans, self._memo, self._keys, strict=True):
            if plan is not None:  # the sweep does not visit nodes whose shapes stay
                memo.setdefault(tuple([live[i] for i in values]), plan)
        self.preview(changes)

    def forget(self) -> None:
        """Plan every node again at the next call, for example because `choice` changed."""
        self.undo()
        self.at = None
        self.version += 1
        self._ranges.clear()
        self._memo = [{} for _ in self.graph.nodes]
        self._twins.clear()
        self.plans[:] = [None] * len(self.plans)

    # -- one node -------------------------------------------------------------------------------

    def _is_skipped(self, node: Node) -> bool:
        return node.when is not None and self.current[node.when.id] == 0

    def offered(self, node: Node) -> list[Route]:
        """All routes of a node at the live shape, in the order of its rule, also those of other devices."""
        return self.evaluate(node, self.current).routes

    def plan_at(self, node: Node, current: Values) -> NodePlan:
        """A node's plan where values have these live shapes, by the order of its rule. Nothing changes.

        Raises OpError.
        """
        if node.when is not None and current[node.when.id] == 0:
            return skipped(node)
        return self._apply_rule(node, current)[0]

    def _apply_rule(
        self, node: Node, current: Values, seed: int | None = None
    ) -> tuple[NodePlan, list[Route]]:
        """A node's plan and usable routes.

        seed: the value of unknown SymInts; outputs then stay at their largest shape.
        """
        self.visits += 1
        found = self.evaluate(node, current, seed)
        runnable = runnable_routes(found.routes, self.features, self.wrong)
        if self._building and len(runnable) > 1:
            self.contested.add(route_key(node))
        routes = usable_routes(node, runnable, self.choice)
        if self._building and self.wrong:
            self._note_wrong(node.name, runnable, routes)

        def first(usable: list[Route]) -> Route | None:
            shapes = partial(self._live_shapes, node, found.outputs.values())
            # Measured choices are for shapes of calls.
            choice = self.choice if current is self.current else None
            return choose(node, usable, shapes, choice, self.wrong)

        route, form = first(routes), self.form(node.index)
        if route is not None and self.late.lacks((form, route.name)):
            route = first(self.late.ready(form, routes))
        if routes and route is None:
            raise OpError("no kernel fits these shapes")
        dispatches = route.dispatches if route else []
        for dispatch in dispatches:
            if max(dispatch.grid) > MAX_GROUPS_PER_DIMENSION:
                raise OpError(f"too much work for one dispatch: grid {dispatch.grid}")
        results = tuple(
            (value, live.shape if isinstance(live, LiveTensor) else live.value)
            for value, live in found.outputs.items()
        )
        if self._building and found.rules:
            self.content_rules += found.rules
            self.indexing[node.index] = None
        name = route.name if route else ""
        return NodePlan(results, name, dispatches, tuple(found.guards), tuple(found.rules)), routes

    def evaluate(self, node: Node, current: Values, seed: int | None = None) -> Evaluation:
        """Call the rule of a node. current: the live shape or integer of each value."""
        found = Evaluation()

        def view(arg: Arg, uniform: bool = False, output: bool = False) -> Any:
            if isinstance(arg, Tensor):
                shape = current[arg.id]
                assert isinstance(shape, tuple)
                live = LiveTensor(arg, shape, found.rules, pinned=seed is not None)
                if output:
                    found.outputs[arg.id] = live
                return live
            if isinstance(arg, SymInt) and output:
                return found.outputs.setdefault(arg.id, LiveResult())
            if isinstance(arg, SymInt):
                value = current[arg.id]
                assert not isinstance(value, tuple)
                if uniform:
                    return LiveInt(arg, None if value is None else trunc(value), found.guards)
                return seed if value is None else value
            if isinstance(arg, tuple):
                return tuple(view(item, uniform, output) for item in arg)
            return LiveInt(arg, arg, found.guards) if uniform and isinstance(arg, int) else arg

        spec = node.op
        last = len(spec.parameters) - 1
        views = [
            view(arg, name in spec.uniforms, position == last)
            for position, (name, arg) in enumerate(zip(spec.parameters, node.args, strict=True))
        ]
        planned: Planned = spec.evaluate(views)
        if node.index in self.layout.copies:
            source, out = views[spec.parameters.index(spec.alias or "")], views[last]
            planned = copy_dispatch(source, out)
        found.routes = _as_routes(planned)
        return found

    def _live_shapes(self, node: Node, outputs: Iterable[LiveTensor | LiveResult]) -> LiveShapes:
        return LiveShapes(
            tuple(self.shape(value) for value in node.reads if isinstance(value, Tensor)),
            tuple(out.shape for out in outputs if isinstance(out, LiveTensor)),
        )

    def _note_wrong(self, operator: str, runnable: list[Route], usable: list[Route]) -> None:
        always = next((route for route in usable if route.when is None), None)
        for label in (route.label for route in runnable if route.label in self.wrong):
            if always is not None and always.label not in self.wrong:
                self.avoided.setdefault(label, set()).add(operator)
            elif operator in self.wrong[label]:
                self.unavoidable.setdefault(label, set()).add(operator)


@dataclass(slots=True)
class Evaluation:
    """What a rule gave: its routes, the outputs that it resized, and its conditions."""

    routes: list[Route] = field(default_factory=list)
    outputs: dict[ValueId, LiveTensor | LiveResult] = field(default_factory=dict)
    guards: list[Guard] = field(default_factory=list)
    rules: list[ContentRule] = field(default_factory=list)


def _as_routes(planned: Planned) -> list[Route]:
    if planned is None:
        return []
    if isinstance(planned, Dispatch):
        return [Route("only", [planned])]
    if all(isinstance(item, Route) for item in planned):
        return planned  # type: ignore[return-value]
    return [Route("only", planned)]  # type: ignore[arg-type]
