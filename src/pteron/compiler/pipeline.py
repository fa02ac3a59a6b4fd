"""From a file to graphs, and from graphs to plans: the only place that knows the order of the steps.

    lowered = lower(file, options=GraphOptions(kv_dtype="f16"))
    lowered.plan(Target(device.route_features))["forward"].graph

Whatever loads, shows or checks a program calls it, so all of them have the graph that runs. No device is
needed: one kind of device differs from another only in its `Target`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pteron.compiler.ir.dispatch import PRECISIONS
from pteron.compiler.ir.problems import CannotRun, Problem, unsupported
from pteron.compiler.ir.values import Graph
from pteron.compiler.lower.bounds import GivenShapes, InputBounds, with_bounds
from pteron.compiler.lower.budget import MAX_NODES, Budget
from pteron.compiler.lower.cache_copies import without_cache_copies
from pteron.compiler.lower.cache_dtype import with_cache_dtype
from pteron.compiler.lower.cache_length import with_cache_length
from pteron.compiler.lower.instructions import try_lower
from pteron.compiler.lower.shared_buffers import divided_buffers, shared_memory
from pteron.compiler.passes import fuse, fuse_for
from pteron.compiler.plan.routes import Choice, WrongRoutes
from pteron.compiler.plan.sweep import LiveGraph, plan
from pteron.compiler.segments.graph import Batching
from pteron.compiler.segments.rewrite import with_segments
from pteron.pte.file import ProgramFile


@dataclass(frozen=True)
class GraphOptions:
    """What the graphs of a file depend on. See `pteron.load`."""

    fuse: Iterable[str] | None = None
    max_nodes: int = MAX_NODES
    kv_dtype: str | None = None
    kv_length: int | None = None
    segments: int | Batching | None = None
    shapes: GivenShapes | None = None

    def __post_init__(self) -> None:
        if self.fuse is not None:  # it may be read only once
            object.__setattr__(self, "fuse", tuple(self.fuse))


@dataclass(frozen=True, slots=True)
class Target:
    """The device that a program is planned for: its features, the routes to prefer, and those to avoid."""

    features: Collection[str] = ()
    choice: Choice | None = None
    wrong: WrongRoutes | None = None
    precision: str = "float32"  # what kernels may round operands to: see `PRECISIONS`

    def plan(self, graph: Graph) -> LiveGraph:
        """Plan a graph at its largest shapes. Raises `CannotRun`, which lists all problems."""
        return plan(graph, (*self.features, *PRECISIONS[self.precision]), self.choice, self.wrong)


PORTABLE = Target()  # what every device can do
AS_STORED = GraphOptions()


@dataclass(frozen=True, slots=True)
class LoweredFile:
    """Methods of a file as graphs, by name.

    Attributes:
        unfused: The graphs before the fusion passes.
        graphs: The graphs after the passes for all devices. A method that cannot be lowered has none.
        problems: What prevents that a method runs on any device.
    """

    options: GraphOptions
    unfused: Mapping[str, Graph]
    graphs: Mapping[str, Graph]
    problems: Mapping[str, Sequence[Problem]]

    def check(self) -> None:
        """Raise one error with the problems of all methods, if there are any."""
        if any(self.problems.values()):
            refused = {name: self._try_plan(name, PORTABLE)[1] for name in self.graphs}
            raise unsupported(
                {name: [*found, *refused.get(name, ())] for name, found in self.problems.items()}
            )

    def plan_method(self, name: str, target: Target = PORTABLE) -> LiveGraph:
        """Run the passes for a device on a method, and plan it. Raises `CannotRun`."""
        return target.plan(fuse_for(target.features, self.graphs[name], self.options.fuse))

    def plan(self, target: Target = PORTABLE) -> dict[str, LiveGraph]:
        """Plan all methods for a device. One error lists the problems of all methods."""
        self.check()
        planned = {name: self._try_plan(name, target) for name in self.graphs}
        if any(refused for _, refused in planned.values()):
            raise unsupported({name: refused for name, (_, refused) in planned.items()})
        return {name: live for name, (live, _) in planned.items() if live is not None}

    def _try_plan(self, name: str, target: Target) -> tuple[LiveGraph | None, list[Problem]]:
        """A planned method, or what its rules refuse."""
        try:
            return self.plan_method(name, target), []
        except CannotRun as error:
            return None, list(error.problems[name])


def lower(
    file: ProgramFile, methods: Iterable[str] | None = None, options: GraphOptions = AS_STORED
) -> LoweredFile:
    """Lower methods of a file (default: all), and run the passes that do not depend on the device."""
    wanted = file.method_names if methods is None else tuple(methods)
    bounds = None if options.shapes is None else InputBounds(options.shapes)
    if bounds is not None:
        bounds.check(file)
    # What methods share depends on all of them.
    together = wanted if shared_memory(file.program) is None else file.method_names
    budget = Budget(options.max_nodes)
    tried = {name: try_lower(file, name, budget) for name in together}
    found = {name: without_cache_copies(graph) for name, (graph, problems) in tried.items() if not problems}
    divided = divided_buffers(file.program, found)
    found = with_cache_dtype(found, options.kv_dtype)
    unfused = {name: _for_options(found[name], options, bounds) for name in wanted if name in found}
    return LoweredFile(
        options,
        unfused,
        {name: fuse(graph, options.fuse) for name, graph in unfused.items()},
        {name: [*tried[name][1], *divided.get(name, ())] for name in wanted},
    )


def _for_options(graph: Graph, options: GraphOptions, bounds: InputBounds | None) -> Graph:
    if bounds is not None:
        graph = with_bounds(graph, bounds)
    graph = with_cache_length(graph, options.kv_length)
    many = options.segments
    if many is None:
        return graph
    return with_segments(graph, Batching(many) if isinstance(many, int) else many)
