"""A method: one graph for every live shape up to the largest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pteron._util import html
from pteron._util.progress import Progress
from pteron.api.expected_shapes import NOTHING_EXPECTED, ExpectedCalls, ShapeRecord, complete
from pteron.api.method_info import IOInfo, Memory, describe
from pteron.compiler.ir.live import Live
from pteron.compiler.ir.sizes import FreeSize
from pteron.compiler.ir.values import Port, SymInt, Tensor, ValueId
from pteron.compiler.plan.dynamic import find_sizes
from pteron.compiler.plan.method_sizes import method_sizes
from pteron.compiler.plan.preplan import preplan
from pteron.compiler.plan.size_errors import why_static
from pteron.compiler.plan.sweep import LiveGraph
from pteron.engine.arrays import AsGiven, host
from pteron.engine.call import AS_IT_IS, Call, Calls
from pteron.engine.devices.device import Device
from pteron.engine.inputs import Inputs
from pteron.engine.staging import Pending
from pteron.engine.state import State
from pteron.engine.state_memory import StateMemory
from pteron.engine.steps import CompiledKernel
from pteron.engine.weight_store import WeightStore
from pteron.errors import InputError, PteronError

if TYPE_CHECKING:
    from pteron.api.program import Program

T = TypeVar("T")


class Method:
    """A loaded method. Call it with arrays at any live shape. A call never allocates or compiles.

    Attributes:
        name: The name of the method.
        inputs: An `IOInfo` for each input: name, dtype, largest shape, dynamic dimensions.
        outputs: The same for each output.
    """

    def __init__(
        self,
        live: LiveGraph,
        device: Device,
        weights: WeightStore,
        program: Program | None = None,
        states: StateMemory | None = None,
        progress: Progress | None = None,
        wait: bool = True,
        expected: ExpectedCalls = NOTHING_EXPECTED,
    ) -> None:
        """states: where the states come from, if the method shares them with others of its program.

        progress: is told how much is compiled. wait: whether to wait until all kernels are compiled.
        expected: the calls to plan now.
        """
        self.graph = live.graph
        self.name = self.graph.name
        self.program = program
        self._closed = False
        self._progress, self._wait, self._expected = progress, wait, expected
        self._record: ShapeRecord | None = None
        found = find_sizes(live)
        self._inputs = Inputs(self.name, self.graph.inputs)
        self._use(Calls(live, device, weights, states, progress, wait))
        with device.lock:  # a thread that compiles late routes also changes plans
            preplan(live, found.inputs)
        self.inputs = tuple(
            describe(port, found.dims.get(_id(port), ()), found.inputs.get(_id(port), ()), found.guessed)
            for port in self.graph.inputs
        )
        self._found = found
        self._plan_expected()

    def open_on(
        self, live: LiveGraph, device: Device, weights: WeightStore, states: StateMemory | None = None
    ) -> None:
        """Create everything that the method needs on a new device. States of the lost device are lost."""
        calls = Calls(live, device, weights, states, self._progress, self._wait)
        self._executor.stop()
        self._use(calls)
        self._plan_expected()

    def _use(self, calls: Calls) -> None:
        self._calls, self._executor, self._live = calls, calls.executor, calls.live
        self.device = calls.executor.device

    def _plan_expected(self) -> None:
        """Plan the expected calls. From now on, no others get a plan if only these are expected."""
        if not self._expected:
            return
        ids = {port.name: _id(port) for port in self.graph.inputs}
        with self.device.lock:
            for call in self.expected:
                try:
                    self._calls.plan_ahead({ids[name]: live for name, live in call.items()})
                except InputError as error:
                    raise InputError(f"expect: {call}: {error}") from None
            self._live.plans_are_complete = self._expected.only

    @property
    def expected(self) -> list[dict[str, Live]]:
        """The shapes and integers of the calls that were expected at load: see `expect` of `load`."""
        return [complete(point, self.inputs) for point in self._expected.points]

    @cached_property
    def outputs(self) -> tuple[IOInfo, ...]:
        """Their sizes are derived when somebody asks for them."""
        sizes = method_sizes(self._live, self._found)
        dims = {_id(port): self._found.dims.get(_id(port), ()) for port in self.graph.outputs}
        return tuple(
            describe(
                port, own, formulas=sizes.texts(port.value, own) if isinstance(port.value, Tensor) else ()
            )
            for port in self.graph.outputs
            for own in [dims[_id(port)]]
        )

    # -- calling --------------------------------------------------------------------------------

    def __call__(
        self,
        *inputs: Any,
        state: State | None = None,
        keep_on_gpu: bool = False,
        timeout: float | None = None,
        **named: Any,
    ) -> Any:
        """Run the method at the shapes of its inputs.

        Args:
            *inputs: Arrays (numpy, torch, anything with DLPack) or `GpuArray`s, in the order of `inputs`.
            state: The mutable state of this call, from `new_state()`. Default: the method's own.
            keep_on_gpu: Return `GpuArray`s, which can be inputs of the next call.
            timeout: The maximum seconds to wait for the GPU.
            **named: Inputs by name. Names are those of the torch module if `pteron.export` wrote the file,
                else `input0`, `input1`, ...

        Returns:
            The output, or a tuple of several outputs: torch tensors if an input is one, else numpy arrays.

        Raises:
            InputError: An input does not fit. Nothing has changed, and the next valid call works.
            DeviceError: The GPU failed.
            DeviceTimeout: It needed longer than `timeout`.
            DeviceLost: The GPU was lost. `program.reload()` loads the program again.

        Example:
            ```python
            method = program.method("forward")
            y = method(x)
            y = method(x[:, :7])   # the same method at a smaller shape
            ```
        """
        pending = self.submit(*inputs, state=state, keep_on_gpu=keep_on_gpu, **named)
        outputs = pending.result(timeout)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def execute(
        self,
        inputs: Sequence[Any],
        *,
        state: State | None = None,
        keep_on_gpu: bool = False,
        last_row: bool = False,
        timeout: float | None = None,
    ) -> list[Any]:
        """Run the method at the shapes of its inputs, as ExecuTorch's `Method.execute` does.

        Args:
            inputs: All inputs, in order.
            state: The mutable state of this call. Default: the method's own.
            keep_on_gpu: Return `GpuArray`s.
            last_row: Read back only the last row of each output, such as the logits of the last token.
            timeout: The maximum seconds to wait for the GPU.

        Returns:
            A list with all outputs. For the errors see `__call__`.
        """
        pending = self.submit(*inputs, state=state, keep_on_gpu=keep_on_gpu, last_row=last_row)
        return pending.result(timeout)

    def submit(
        self,
        *inputs: Any,
        state: State | None = None,
        keep_on_gpu: bool = False,
        last_row: bool = False,
        **named: Any,
    ) -> Pending[list[Any]]:
        """Start a call, and return before the GPU has finished it.

        Two calls may be in flight. A third call first waits for the oldest.

        Args:
            *inputs: As in `__call__`.
            state: The mutable state of this call. Default: the method's own.
            keep_on_gpu: The outputs are `GpuArray`s.
            last_row: Read back only the last row of each output.
            **named: Inputs by name.

        Returns:
            A `Pending`. `pending.result()` waits for the list of outputs. `await pending` waits without
            blocking the event loop.
        """
        self.device.check_usable()
        given = self._inputs.in_order(inputs, named)
        arrays = self._inputs.read(given, self.device)
        with self.device.lock:
            call = self._prepared(arrays, state, host.kind_of(given))
            return call.submit(keep_on_gpu=keep_on_gpu, last_row=last_row)

    def submit_and_look(
        self, inputs: Sequence[Any], look: Callable[[list[Any]], T], *, state: State | None = None
    ) -> Pending[T]:
        """Start a call whose outputs are looked at, but not copied.

        Args:
            inputs: All inputs, in order.
            look: A function that gets the last row of each output, once the GPU has finished. The rows may
                be in memory that is valid only during this call of the function.
            state: The mutable state of this call. Default: the method's own.

        Returns:
            A `Pending` with the result of `look`.
        """
        self.device.check_usable()
        arrays = self._inputs.read(self._inputs.in_order(inputs, {}), self.device)
        with self.device.lock:
            return self._prepared(arrays, state).read_back(look, True, host.borrowed)

    @contextmanager
    def prepare(self, *inputs: Any, state: State | None = None, **named: Any) -> Iterator[Call]:
        """Do everything for a call except running it: check the inputs, plan, and upload.

        The block then runs the call as a whole, or node by node, or not at all. Threads that call the method
        wait for the end of the block.

        Args:
            *inputs: As in `__call__`.
            state: The mutable state of this call. Default: the method's own.
            **named: Inputs by name.

        Yields:
            A `Call`. `call.submit()` starts it as a whole. `call.steps()` are its nodes.

        Raises:
            InputError: An input does not fit. Nothing has changed.

        Example:
            ```python
            with method.prepare(x) as call:
                for step in call.steps():
                    step.run()
                    print(step.node.name, step.route, step.kernels)
            ```
        """
        self.device.check_usable()
        given = self._inputs.in_order(inputs, named)
        arrays = self._inputs.read(given, self.device)
        with self.device.lock:
            call = self._prepared(arrays, state, host.kind_of(given))
            try:
                yield call
            finally:
                call.end()

    def _prepared(self, arrays: Sequence[Any], state: State | None, as_given: AsGiven = AS_IT_IS) -> Call:
        """A call with inputs that are read. The caller holds the device's lock."""
        self._check_open()
        state = self._state() if state is None else state
        self._check_mine(state)
        call = self._calls.prepare(arrays, state, as_given)
        if self._record is not None:
            self._record.count(self._live_shapes(self.graph.inputs))
        return call

    def plan_again(self) -> None:
        """Plan every node again at the next call, because the choice of routes has changed."""
        with self.device.lock:
            self._live.forget()

    def record_shapes(self, path: str | Path) -> ShapeRecord:
        """Count the shapes and integers of all calls from now on, and write them to a file.

        `pteron.load(expect=path)` plans these calls at load. `pteron tune --expect` times kernels at them.

        Args:
            path: The file to write.

        Returns:
            The record. `stop()`, or the end of a `with` block, ends it.

        Example:
            ```python
            with method.record_shapes("shapes.json"):
                serve(method)
            ```
        """
        record = ShapeRecord(path, self.name, self._stop_record)
        with self.device.lock:
            self._check_open()
            if self._record is not None:
                raise PteronError(f"method '{self.name}' already records its shapes: stop that record first")
            self._record = record
        return record

    def _stop_record(self, record: ShapeRecord) -> None:
        with self.device.lock:
            if self._record is record:
                self._record = None

    # -- state ----------------------------------------------------------------------------------

    def new_state(self) -> State:
        """Make a new mutable state (KV caches) for the same weights. Pass it to calls as `state=`.

        Example:
            ```python
            state = method.new_state()
            method(x, state=state)
            ```
        """
        self.device.check_usable()
        with self.device.lock:
            self._check_open()
            state = self._executor.states.new()
            try:
                self._executor.use(state)
            except BaseException:
                state.close()
                raise
            return state

    def owns(self, state: State) -> bool:
        """Whether a state belongs to this method and its current device."""
        return state.memory is self._executor.states

    def reset(self) -> None:
        """Reset the default state to its initial contents."""
        with self.device.lock:
            self._check_open()
            self._state().reset()

    def _state(self) -> State:
        """The default state."""
        states = self._executor.states
        return states.default or states.of_calls()

    def _check_open(self) -> None:
        if self._closed:
            raise PteronError(f"method '{self.name}' is closed")

    def _check_mine(self, state: State) -> None:
        if not isinstance(state, State):
            raise InputError(
                f"state must be made by method.new_state(), not a {type(state).__name__}: pass an input that "
                "is named state by position"
            )
        if not self.owns(state):
            if any(graph is self.graph for graph in state.memory.graphs):
                raise InputError("the state was lost with its device: make another with method.new_state()")
            raise InputError(f"the state belongs to another method than '{self.name}'")
        if state.closed:
            state.check_open()

    # -- information ----------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """Whether all kernels are compiled. Always true if the program was loaded with `wait=True`."""
        late = self._executor.late
        return late is None or late.ready

    def wait_ready(self, timeout: float | None = None) -> None:
        """Wait until all kernels are compiled.

        Args:
            timeout: The maximum seconds to wait.

        Raises:
            DeviceError: A kernel cannot be compiled.
            DeviceTimeout: The time was not enough.
        """
        self.device.check_usable()
        if self._executor.late is not None:
            self._executor.late.wait(timeout)

    @property
    def live_shapes(self) -> dict[str, Live]:
        """The shape of every input and output in the last call, by name. For an integer: its value."""
        with self.device.lock:
            self._live.undo()
            return html.Shapes(self._live_shapes((*self.graph.inputs, *self.graph.outputs)))

    def _live_shapes(self, ports: Iterable[Port]) -> dict[str, Live]:
        live = self._live.current
        return {p.name: live[p.value.id] for p in ports if isinstance(p.value, (Tensor, SymInt))}

    def why_static(self, name: str, dim: int) -> str | None:
        """Say why a dimension of an input cannot be smaller.

        Args:
            name: The name of the input.
            dim: The number of the dimension, from 0.

        Returns:
            The error of the node that refuses a smaller size, the line of the module that it comes from, if
            the file has it, and what would help. None if the dimension is dynamic.
        """
        port = next((p for p in self.graph.inputs if p.name == name and isinstance(p.value, Tensor)), None)
        if port is None or not 0 <= dim < len(port.max_shape):
            raise InputError(f"{self!r} has no input {name} with a dimension {dim}")
        if not port.resizable:
            return "the program was exported with a static shape: export it with dynamic_shapes"
        with self.device.lock:
            return why_static(self._live, port, dim)

    @property
    def memory(self) -> Memory:
        """What the method needs on the GPU, by purpose."""
        executor = self._executor
        return Memory(
            executor.weights.nbytes,
            executor.memory.nbytes,
            executor.states.nbytes,
            executor.staging.nbytes,
            executor.params.nbytes,
        )

    @property
    def kernels(self) -> tuple[CompiledKernel, ...]:
        """All kernels that calls may use, at any shape. Those of one call are in the steps of `prepare`."""
        nodes = self.graph.nodes
        return tuple(
            CompiledKernel(node, nodes[node].name, route, shader.kernel.name, shader.text)
            for node, route, shader in self._executor.compiled()
        )

    @property
    def state_nbytes(self) -> int:
        """Bytes on the GPU of the KV caches of one conversation."""
        return self.memory.state

    def symint(self, name: str) -> int | float | None:
        """The current value of a SymInt (an integer that the program computes), by its name in `inspect`."""
        for value in self.graph.values:
            if value.name == name:
                with self.device.lock:
                    self._live.undo()
                    return self._live.integer(value)
        raise PteronError(f"method '{self.name}' has no value named {name}")

    def close(self) -> None:
        """Free the method's GPU memory. Waits for a call in another thread."""
        with self.device.lock:
            if self._closed:
                return
            self._closed = True
            self._executor.close()

    def __reduce__(self) -> Any:
        """A method is pickled as its program and its name, without states."""
        if self.program is None:
            raise TypeError("a method without a program cannot be pickled")
        return type(self.program).method, (self.program, self.name)

    def __repr__(self) -> str:
        said: set[FreeSize] = set()
        takes, gives = (", ".join(info.text(said) for info in ports) for ports in (self.inputs, self.outputs))
        return f"<Method {self.name}({takes}) -> {gives}>"

    def _repr_html_(self) -> str:
        ports = [("input", port) for port in self.inputs] + [("output", port) for port in self.outputs]
        memory = {name: html.size(getattr(self.memory, name)) for name in ("weights", "activations", "state")}
        return html.section(
            f"Method {self.name}",
            html.table(("", "largest shape"), ((kind, port) for kind, port in ports)),
            html.facts(memory),
        )


def _id(port: Port) -> ValueId:
    return port.value.id if isinstance(port.value, (Tensor, SymInt)) else ValueId(-1)
