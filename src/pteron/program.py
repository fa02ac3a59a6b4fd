"""A program: a `.pte` file, its weights on the GPU, and its methods."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Protocol

import pteron.ops  # noqa: F401  registers the operators
from pteron.arrays import convert_constant
from pteron.errors import PteronError
from pteron.fusion import fuse
from pteron.gpu.device import Device
from pteron.gpu.placement import Placement
from pteron.ir.problems import CannotRun, Problem, unsupported
from pteron.ir.values import Graph
from pteron.lower.budget import MAX_NODES, Budget
from pteron.lower.cache_dtype import with_cache_dtype
from pteron.lower.instructions import try_lower
from pteron.method import Method
from pteron.plan.routes import Choice
from pteron.plan.sweep import LiveGraph, plan
from pteron.pte.file import ProgramFile


class Tuner(Protocol):
    """Finds the fastest routes on a device."""

    def tune(self, live: LiveGraph, device: Device, load: Callable[[Choice], Method]) -> Choice | None:
        """A better choice than that of `live`, or None.

        `load` creates a method with another choice.
        """


class Program:
    """A loaded program. It owns the file and the weights. Methods are created at first use."""

    def __init__(
        self,
        file: ProgramFile,
        graphs: Mapping[str, Graph],
        device: Device,
        *,
        owns_device: bool = False,
        choice: Choice | None = None,
        tuner: Tuner | None = None,
        origin: Callable[[], tuple[Any, ...]] | None = None,
    ) -> None:
        """Call `pteron.load` instead.

        graphs: the result of `lower_all`. origin: how to load the program again after pickling.
        """
        self.file = file
        self.device = device
        self._owns_device = owns_device
        self._choice = choice
        self._tuner = tuner
        self._origin = origin
        self._planned = _plan_all(graphs, device.route_features, choice)
        self._weights = Placement(device, convert_constant)
        self._methods: dict[str, Method] = {}
        self._lock = threading.RLock()
        self._closed = False

    @property
    def method_names(self) -> tuple[str, ...]:
        return self.file.method_names

    def method(self, name: str = "forward") -> Method:
        """A method. It is loaded at first use. Returns the same object every time."""
        with self._lock:
            if self._closed:
                raise PteronError("the program is closed")
            if name not in self._methods:
                self.file.plan(name)  # the KeyError lists the methods
                with self.device.lock:
                    self._methods[name] = self._load(self._planned[name])
                    del self._planned[name]
            return self._methods[name]

    def _load(self, live: LiveGraph) -> Method:
        if self._tuner is not None:
            choice = self._tuner.tune(live, self.device, lambda trial: self._load_with(live.graph, trial))
            if choice is not None:
                return self._load_with(live.graph, choice)
        return Method(live, self.device, self._weights, self)

    def _load_with(self, graph: Graph, choice: Choice) -> Method:
        return Method(plan(graph, self.device.route_features, choice), self.device, self._weights, self)

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        """Call `forward`."""
        return self.method("forward")(*inputs, **options)

    def reload(self, device: Device | None = None) -> None:
        """Load the program again on a new device, after `DeviceLost`.

        The program and its methods stay the same objects. Their states (KV caches) are lost. Pass a `device`
        if several programs share one. Default: the same adapter is opened again.
        """
        with self._lock:
            if self._closed:
                raise PteronError("the program is closed")
            new = device or self.device.reopen()
            weights = Placement(new, convert_constant)
            for method in self._methods.values():
                method.open_on(plan(method.graph, new.route_features, self._choice), new, weights)
            self._planned = {
                name: plan(live.graph, new.route_features, self._choice)
                for name, live in self._planned.items()
            }
            if self._owns_device:
                self.device.close()
            self.device, self._weights, self._owns_device = new, weights, device is None

    def close(self) -> None:
        """Free everything on the GPU. Waits for calls in other threads. A second close does nothing."""
        with self._lock, self.device.lock:
            if self._closed:
                return
            self._closed = True
            for method in self._methods.values():
                method.close()
            self._methods.clear()
            self._planned.clear()
            self._weights.close()
            if self._owns_device:
                self.device.close()
            self.file.close()

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        """A program is pickled as its file and its options. Unpickling loads it again."""
        if self._origin is None:
            raise TypeError("only a program from pteron.load can be pickled")
        return self._origin()

    def __repr__(self) -> str:
        return f"<Program {', '.join(self.method_names)} on {self.device.name}>"


def lower_all(
    file: ProgramFile,
    passes: Iterable[str] | None = None,
    max_nodes: int = MAX_NODES,
    kv_dtype: str | None = None,
) -> dict[str, Graph]:
    """Lower and fuse all methods. One error lists the problems of all methods."""
    passes = None if passes is None else list(passes)
    graphs: dict[str, Graph] = {}
    problems: dict[str, list[Problem]] = {}
    budget = Budget(max_nodes)
    for name in file.method_names:
        graph, problems[name] = try_lower(file, name, budget)
        if not problems[name]:
            graphs[name] = fuse(with_cache_dtype(graph, kv_dtype), passes)
    if any(problems.values()):
        for name, graph in graphs.items():
            problems[name] = _try_plan(graph)[1]
        raise unsupported(problems)
    return graphs


def _plan_all(
    graphs: Mapping[str, Graph], features: Collection[str], choice: Choice | None
) -> dict[str, LiveGraph]:
    planned = {name: _try_plan(graph, features, choice) for name, graph in graphs.items()}
    problems = {name: refused for name, (_, refused) in planned.items()}
    if any(problems.values()):
        raise unsupported(problems)
    return {name: live for name, (live, _) in planned.items() if live is not None}


def _try_plan(
    graph: Graph, features: Collection[str] = (), choice: Choice | None = None
) -> tuple[LiveGraph | None, list[Problem]]:
    """A planned graph, or what its rules refuse."""
    try:
        return plan(graph, features, choice), []
    except CannotRun as error:
        return None, list(error.problems[graph.name])
