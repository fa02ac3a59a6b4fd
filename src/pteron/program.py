"""A program: a `.pte` file, its weights on the GPU, and its methods."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from typing import Any, Protocol

import pteron.ops  # noqa: F401  registers the operators
from pteron import html
from pteron.arrays import host
from pteron.errors import InputError, PteronError
from pteron.fusion import fuse, fuse_for
from pteron.gpu.device import Device
from pteron.gpu.executor import used_constants
from pteron.gpu.placement import Placement
from pteron.ir.problems import CannotRun, Problem, unsupported
from pteron.ir.values import Graph
from pteron.lower.budget import MAX_NODES, Budget
from pteron.lower.cache_dtype import with_cache_dtype
from pteron.lower.instructions import try_lower
from pteron.method import Method
from pteron.notebook_bar import NotebookBar
from pteron.plan.routes import Choice, WrongRoutes
from pteron.plan.sweep import LiveGraph, plan
from pteron.pte.file import ProgramFile
from pteron.segments.graph import Batching, SegmentedGraph
from pteron.segments.rewrite import with_segments


class Tuner(Protocol):
    """Finds the fastest routes on a device."""

    def tune(self, live: LiveGraph, device: Device, load: Callable[[Choice], Method]) -> Choice | None:
        """A better choice than that of `live`, or None.

        `load` creates a method with another choice.
        """


class Program:
    """A loaded program. `pteron.load` makes it. It owns the file and the weights on the GPU.

    Calling a program calls its method `forward`. A program is a context manager: the end of the `with` block
    closes it. Threads may share it. It can be pickled: the pickle has the path of the file and the options.
    """

    def __init__(
        self,
        file: ProgramFile,
        graphs: Mapping[str, Graph],
        device: Device,
        *,
        owns_device: bool = False,
        choice: Choice | None = None,
        wrong: WrongRoutes | None = None,
        tuner: Tuner | None = None,
        progress: Callable[[float, str], None] | None = None,
        wait: bool = True,
        origin: Callable[[Any], tuple[Callable[..., Program], tuple[Any, ...]]] | None = None,
    ) -> None:
        """Call `pteron.load` instead.

        graphs: the result of `lower_all`. wrong: routes to avoid on this device. origin: how to load the
        program again, on a given device. wait: whether a method waits until all its kernels are compiled.
        """
        self.file = file
        self.device = device
        self.owns_device = owns_device
        self._choice = choice
        self._wrong = wrong
        self._tuner = tuner
        self.progress = progress  # is told how much of a method is compiled
        self.waits = wait
        self._origin = origin
        self._planned = _plan_all(graphs, device.route_features, choice, wrong)
        self._weights = Placement(device, host.convert_constant)
        self._methods: dict[str, Method] = {}
        self._lock = threading.RLock()
        self._closed = False

    @property
    def method_names(self) -> tuple[str, ...]:
        """The names of the methods in the file."""
        return self.file.method_names

    @property
    def planned(self) -> Collection[LiveGraph]:
        """The methods that are not loaded yet, as they will be."""
        return self._planned.values()

    def method(self, name: str = "forward") -> Method:
        """Load a method, or return the loaded one.

        Args:
            name: One of `method_names`.

        Returns:
            The method. The same name gives the same object every time.

        Raises:
            KeyError: The program has no such method. The message lists the methods.
        """
        with self._lock:
            if not self.has_loaded(name):
                self.begin(name)
                try:
                    self.device.wait()
                except BaseException:
                    self.unload(name)
                    raise
            return self._methods[name]

    @property
    def ready(self) -> bool:
        """Whether all kernels of the methods that were used are compiled. See `load(wait=False)`."""
        return all(method.ready for method in self._used_methods())

    def wait_ready(self, timeout: float | None = None) -> None:
        """Wait until all kernels of the methods that were used are compiled.

        Args:
            timeout: The maximum seconds to wait for each method.

        Raises:
            DeviceError: A kernel cannot be compiled, or the time was not enough.
        """
        for method in self._used_methods():
            method.wait_ready(timeout)

    def _used_methods(self) -> list[Method]:
        with self._lock:
            return list(self._methods.values())

    def has_loaded(self, name: str) -> bool:
        """Whether a method was used before."""
        if self._closed:
            raise PteronError("the program is closed")
        return name in self._methods

    def begin(self, name: str) -> Method:
        """Load a method, but do not wait until the device has compiled it."""
        with self._lock, self.device.lock:
            self.file.plan(name)  # the KeyError lists the methods
            self._methods[name] = self._load(self._planned[name])
            del self._planned[name]
            return self._methods[name]

    @asynccontextmanager
    async def fetched(self, name: str) -> AsyncIterator[None]:
        """Upload the constants of a method that are in remote files. If the block fails, they are freed."""
        live = self._planned.get(name)
        with self._weights.all_or_nothing():
            if live is not None:
                await self._weights.fetch(used_constants(live.graph))
            yield

    async def fetch_weights(self, device: Device) -> Placement:
        """The constants of all loaded methods that are in remote files, on another device: for `reload`."""
        weights = Placement(device, host.convert_constant)
        for method in self._methods.values():
            await weights.fetch(used_constants(method.graph))
        return weights

    def unload(self, name: str) -> None:
        """Free a method. Its next use loads it again."""
        with self._lock:
            method = self._methods.pop(name)
            self._planned[name] = plan(method.graph, self.device.route_features, self._choice, self._wrong)
            method.close()

    def _load(self, live: LiveGraph) -> Method:
        if self._tuner is not None:
            choice = self._tuner.tune(live, self.device, lambda trial: self._load_with(live.graph, trial))
            if choice is not None:
                return self._load_with(live.graph, choice)
        return self._made(live)

    def _load_with(self, graph: Graph, choice: Choice) -> Method:
        return self._made(plan(graph, self.device.route_features, choice, self._wrong))

    def _made(self, live: LiveGraph) -> Method:
        if isinstance(live.graph, SegmentedGraph):
            from pteron.segmented_method import SegmentedMethod  # needs numpy

            return SegmentedMethod(live, self.device, self._weights, self)
        return Method(live, self.device, self._weights, self)

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        """Call the method `forward`. See `Method.__call__`."""
        return self.method("forward")(*inputs, **options)

    def map(
        self,
        rows: Any,
        columns: Mapping[str, str] | Sequence[str] | None = None,
        *,
        method: str = "forward",
        devices: Sequence[Any] | None = None,
        **options: Any,
    ) -> Iterator[Any]:
        """Run a method on any number of rows.

        Rows are gathered into batches of up to the largest size of the first dimension. In a notebook, a bar
        shows how many are done.

        Args:
            rows: An iterable, an array, columns by name, or a table or dataset of Arrow. A row is a mapping
                from column names to values, a tuple with a value per input, or one value. It has no batch
                dimension. At most one window of rows is in memory.
            columns: The column of each input, by name or in order. Default: columns named like inputs.
            method: The method to run.
            devices: The adapters or open devices to use side by side. Default: the program's own device.
            **options: How rows are gathered:

                - `mask`: the name of an input `[batch, length]` in which 1 means real and 0 means padding.
                  With it, rows of different lengths share a batch. Default: the only input without a column,
                  if it has the shape of another input. Without a mask, only rows of one shape share a batch.
                - `pad`: the value of padding. Default: 0.
                - `batch`: the largest number of rows in a batch.
                - `window`: the number of rows among which rows of similar length are found.
                - `prepare`: a function that is called with each row, and returns what the method takes.
                - `on_error`: `"raise"` (default) raises the error of a bad row, after the results of the rows
                  before it. `"return"` yields the error in place of the result, and continues.

        Yields:
            The result of each row, in the order of the rows.

        Raises:
            RowError: A row cannot be run. `error.row` is its number, from 0.

        Example:
            ```python
            for y in program.map(rows, {"input0": "features"}):
                ...
            ```
        """
        from pteron.mapping import map_rows  # needs numpy

        if devices is None:
            results = map_rows([self.method(method)], rows, columns, **options)
            return NotebookBar("rows").over(results, rows)
        if not devices:
            raise InputError("devices: expected one or more adapters, got none")
        return NotebookBar("rows").over(self._map_on(devices, method, rows, columns, options), rows)

    def _map_on(
        self, devices: Sequence[Any], method: str, rows: Any, columns: Any, options: dict[str, Any]
    ) -> Iterator[Any]:
        from pteron.mapping import map_rows

        with ExitStack() as stack:
            programs = [stack.enter_context(self.copy_on(device)) for device in devices]
            yield from map_rows([p.method(method) for p in programs], rows, columns, **options)

    def copy_on(self, device: Any) -> Program:
        """Load the same program again on another device.

        Args:
            device: An adapter's index or part of its name, or an open device.
        """
        load, arguments = self._how_to_load(device)
        return load(*arguments)

    def _how_to_load(self, device: Any) -> tuple[Callable[..., Program], tuple[Any, ...]]:
        if self._origin is None:
            raise TypeError("only a program from pteron.load can be loaded again or pickled")
        return self._origin(device)

    def reload(
        self, device: Device | None = None, *, weights: Placement | None = None, wait: bool = True
    ) -> None:
        """Load the program again on a new device, after `DeviceLost`.

        The program and its methods stay the same objects. Their states (KV caches) are lost.

        Args:
            device: An open device, if several programs share one. Default: the same adapter is opened again.
            weights: Constants that are already on this device. Default: all are uploaded.
            wait: Whether to wait until the device has compiled everything.
        """
        with self._lock:
            if self._closed:
                raise PteronError("the program is closed")
            new = device or self.device.reopen()
            weights = weights or Placement(new, host.convert_constant)
            for method in self._methods.values():
                live = plan(method.graph, new.route_features, self._choice, self._wrong)
                method.open_on(live, new, weights)
            if wait:
                new.wait()
            self._planned = {
                name: plan(live.graph, new.route_features, self._choice, self._wrong)
                for name, live in self._planned.items()
            }
            if self.owns_device:
                self.device.close()
            self.device, self._weights, self.owns_device = new, weights, device is None

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
            if self.owns_device:
                self.device.close()
            self.file.close()

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        """A program is pickled as its file and its options. Unpickling loads it again."""
        return self._how_to_load(self.device.name)

    def __repr__(self) -> str:
        return f"<Program {', '.join(self.method_names)} on {self.device.name}>"

    def _repr_html_(self) -> str:
        loaded = (self._methods[name]._repr_html_() for name in self.method_names if name in self._methods)
        rest = [name for name in self.method_names if name not in self._methods]
        return html.section(
            f"Program on {self.device.name}",
            *loaded,
            *([html.facts({"methods that are loaded at first use": ", ".join(rest)})] if rest else ()),
        )


def lower_all(
    file: ProgramFile,
    passes: Iterable[str] | None = None,
    max_nodes: int = MAX_NODES,
    kv_dtype: str | None = None,
    batching: Batching | None = None,
) -> dict[str, Graph]:
    """Lower and fuse all methods. One error lists the problems of all methods."""
    passes = None if passes is None else list(passes)
    graphs: dict[str, Graph] = {}
    problems: dict[str, list[Problem]] = {}
    budget = Budget(max_nodes)
    for name in file.method_names:
        graph, problems[name] = try_lower(file, name, budget)
        if not problems[name]:
            graph = with_cache_dtype(graph, kv_dtype)
            graphs[name] = fuse(with_segments(graph, batching) if batching else graph, passes)
    if any(problems.values()):
        for name, graph in graphs.items():
            problems[name] = _try_plan(graph)[1]
        raise unsupported(problems)
    return graphs


def fuse_all_for(
    device: Device, graphs: Mapping[str, Graph], passes: Iterable[str] | None = None
) -> dict[str, Graph]:
    """The graphs, changed by the passes for this kind of device."""
    return {name: fuse_for(device.route_features, graph, passes) for name, graph in graphs.items()}


def _plan_all(
    graphs: Mapping[str, Graph], features: Collection[str], choice: Choice | None, wrong: WrongRoutes | None
) -> dict[str, LiveGraph]:
    planned = {name: _try_plan(graph, features, choice, wrong) for name, graph in graphs.items()}
    problems = {name: refused for name, (_, refused) in planned.items()}
    if any(problems.values()):
        raise unsupported(problems)
    return {name: live for name, (live, _) in planned.items() if live is not None}


def _try_plan(
    graph: Graph,
    features: Collection[str] = (),
    choice: Choice | None = None,
    wrong: WrongRoutes | None = None,
) -> tuple[LiveGraph | None, list[Problem]]:
    """A planned graph, or what its rules refuse."""
    try:
        return plan(graph, features, choice, wrong), []
    except CannotRun as error:
        return None, list(error.problems[graph.name])
