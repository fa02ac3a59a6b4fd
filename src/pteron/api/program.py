"""A program: a `.pte` file, its weights on the GPU, and its methods."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any, Protocol

from pteron._util import html
from pteron._util.progress import NotebookBar, Progress
from pteron.api.expected_shapes import NOTHING_EXPECTED, ExpectedCalls
from pteron.api.method import Method
from pteron.compiler.ir.values import Graph
from pteron.compiler.pipeline import LoweredFile, Target
from pteron.compiler.plan.routes import Choice
from pteron.compiler.plan.sweep import LiveGraph
from pteron.compiler.segments.graph import SegmentedGraph
from pteron.engine.arrays import host
from pteron.engine.devices.device import Device
from pteron.engine.devices.shared import borrow, give_back
from pteron.engine.executor import used_constants
from pteron.engine.state import State
from pteron.engine.state_memory import StateMemory
from pteron.engine.weight_store import WeightStore
from pteron.errors import InputError, PteronError
from pteron.pte.file import ProgramFile


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
        lowered: LoweredFile,
        device: Device,
        target: Target,
        *,
        owns_device: bool = False,
        tuner: Tuner | None = None,
        progress: Progress | None = None,
        wait: bool = True,
        origin: Callable[..., tuple[Callable[..., Program], tuple[Any, ...]]] | None = None,
        expected: Mapping[str, ExpectedCalls] | None = None,
    ) -> None:
        """Call `pteron.load` instead.

        origin: how to load the program again, on a given device. wait: whether a method waits until all its
        kernels are compiled. expected: the calls of each method to plan.
        """
        self.file = file
        self.device = device
        self.owns_device = owns_device
        self._target = target
        self._tuner = tuner
        self.progress = progress  # is told how much of a method is compiled
        self.waits = wait
        self._origin = origin
        self._expected = expected or {}
        self._planned = lowered.plan(target)
        self._graphs = [live.graph for live in self._planned.values()]
        self._weights = WeightStore(device, host.convert_constant)
        self._states: StateMemory | None = None  # of all methods, if they share state
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
        """Whether all kernels of the loaded methods are compiled. See `load(wait=False)`."""
        return all(method.ready for method in self._loaded_methods())

    def wait_ready(self, timeout: float | None = None) -> None:
        """Wait until all kernels of the loaded methods are compiled.

        Args:
            timeout: The maximum seconds to wait for each method.

        Raises:
            DeviceError: A kernel cannot be compiled.
            DeviceTimeout: The time was not enough.
        """
        for method in self._loaded_methods():
            method.wait_ready(timeout)

    def _loaded_methods(self) -> list[Method]:
        with self._lock:
            return list(self._methods.values())

    def has_loaded(self, name: str) -> bool:
        """Whether a method is loaded. Others are loaded at their first use."""
        self._check_open()
        return name in self._methods

    def _check_open(self) -> None:
        if self._closed:
            raise PteronError("the program is closed")

    def begin(self, name: str) -> Method:
        """Load a method, but do not wait until the device has compiled it."""
        with self._lock, self.device.lock:
            self.file.plan(name)  # the KeyError lists the methods
            self._methods[name] = self._load(self._planned[name])
            del self._planned[name]
            return self._methods[name]

    @asynccontextmanager
    async def fetching(self, name: str) -> AsyncIterator[None]:
        """Upload the constants of a method that are in remote files. If the block fails, they are freed."""
        live = self._planned.get(name)
        with self._weights.all_or_nothing():
            if live is not None:
                await self._weights.fetch(used_constants(live.graph))
            yield

    async def fetch_weights(self, device: Device) -> WeightStore:
        """The constants of all loaded methods that are in remote files, on another device: for `reload`."""
        weights = WeightStore(device, host.convert_constant)
        for method in self._methods.values():
            await weights.fetch(used_constants(method.graph))
        return weights

    def unload(self, name: str) -> None:
        """Free a method. Its next use loads it again."""
        with self._lock:
            method = self._methods.pop(name)
            self._planned[name] = self._target.plan(method.graph)
            method.close()

    def _load(self, live: LiveGraph) -> Method:
        if self._tuner is not None:
            # Trials have states of their own: loading a method does not change the state of others.
            choice = self._tuner.tune(
                live, self.device, lambda trial: self._made(self._planned_with(trial, live.graph), None)
            )
            if choice is not None:
                live = self._planned_with(choice, live.graph)
        return self._made(live, self._shared_states())

    def _planned_with(self, choice: Choice, graph: Graph) -> LiveGraph:
        return replace(self._target, choice=choice).plan(graph)

    def _made(self, live: LiveGraph, states: StateMemory | None) -> Method:
        if isinstance(live.graph, SegmentedGraph):
            from pteron.api.segmented_method import SegmentedMethod  # needs numpy

            return SegmentedMethod(live, self.device, self._weights, self, self.progress, self.waits)
        expected = self._expected.get(live.graph.name, NOTHING_EXPECTED)
        return Method(live, self.device, self._weights, self, states, self.progress, self.waits, expected)

    # -- state ----------------------------------------------------------------------------------

    def new_state(self) -> State:
        """Make a new mutable state (KV caches). Pass it to calls as `state=`.

        If the methods of the program share state, all of them take it. Else it is a state of `forward`.

        Example:
            ```python
            state = program.new_state()
            program.method("prefill")(tokens, state=state)
            program.method("decode")(token, state=state)
            ```
        """
        with self._lock:
            if not self.shares_state:
                return self.method("forward").new_state()
            self._check_open()
            self.device.check_usable()
            with self.device.lock:
                states = self._shared_states()
                assert states is not None
                return states.new()

    @property
    def shares_state(self) -> bool:
        """Whether methods share state: one writes a buffer, and another reads it."""
        return any(graph.shared for graph in self._graphs)

    def _shared_states(self) -> StateMemory | None:
        if self._states is None and self.shares_state:
            self._states = self._shared_states_on(self.device, self._weights)
        return self._states

    def _shared_states_on(self, device: Device, weights: WeightStore) -> StateMemory:
        with weights.all_or_nothing():
            return StateMemory(self._graphs, device, weights)

    def __call__(
        self,
        *inputs: Any,
        state: State | None = None,
        keep_on_gpu: bool = False,
        timeout: float | None = None,
        **named: Any,
    ) -> Any:
        """Call the method `forward`. See `Method.__call__`."""
        method = self.method("forward")
        return method(*inputs, state=state, keep_on_gpu=keep_on_gpu, timeout=timeout, **named)

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
        from pteron.api.mapping import map_rows  # needs numpy

        if devices is None:
            results = map_rows([self.method(method)], rows, columns, **options)
            return NotebookBar("rows").over(results, rows)
        if not devices:
            raise InputError("devices: expected one or more adapters, got none")
        return NotebookBar("rows").over(self._map_on(devices, method, rows, columns, options), rows)

    def _map_on(
        self, devices: Sequence[Any], method: str, rows: Any, columns: Any, options: dict[str, Any]
    ) -> Iterator[Any]:
        from pteron.api.mapping import map_rows

        with ExitStack() as stack:
            programs = [stack.enter_context(self.copy_on(device, methods=(method,))) for device in devices]
            yield from map_rows([p.method(method) for p in programs], rows, columns, **options)

    def copy_on(self, device: Any, methods: Iterable[str] | None = None) -> Program:
        """Load the same program again on another device.

        Args:
            device: An adapter's index or part of its name, or an open device.
            methods: As for `load`. Default: those that this program was loaded with.
        """
        changed = {} if methods is None else {"methods": methods}
        load, arguments = self._how_to_load(device, **changed)
        return load(*arguments)

    def _how_to_load(self, device: Any, **changed: Any) -> tuple[Callable[..., Program], tuple[Any, ...]]:
        if self._origin is None:
            raise TypeError("only a program from pteron.load can be loaded again or pickled")
        return self._origin(device, **changed)

    def reload(
        self, device: Device | None = None, *, weights: WeightStore | None = None, wait: bool = True
    ) -> None:
        """Load the program again on a new device, after `DeviceLost`.

        The program and its methods stay the same objects. Their states (KV caches) are lost.

        Args:
            device: An open device, if several programs share one. Default: the same adapter is opened again.
            weights: Constants that are already on this device. Default: all are uploaded.
            wait: Whether to wait until the device has compiled everything.
        """
        with self._lock:
            self._check_open()
            new = device or self._borrow_again()
            weights = weights or WeightStore(new, host.convert_constant)
            target = replace(self._target, features=new.route_features)
            states = self._shared_states_on(new, weights) if self.shares_state else None
            for method in self._methods.values():
                method.open_on(target.plan(method.graph), new, weights, states)
            if wait:
                new.wait()
            self._planned = {name: target.plan(live.graph) for name, live in self._planned.items()}
            if self.owns_device:
                give_back(self.device)
            self.device, self._weights, self.owns_device = new, weights, device is None
            self._target = target
            self._states = states

    def _borrow_again(self) -> Device:
        adapter = self.device.adapter
        return self.device.reopen() if adapter is None else borrow(adapter)

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
            if self._states is not None:
                self._states.close()
            self._weights.close()
            if self.owns_device:
                give_back(self.device)
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
