"""A method: one graph for every live shape up to the largest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from pteron import html
from pteron.arrays import AsGiven, GpuArray, host
from pteron.errors import InputError, PteronError
from pteron.gpu import call
from pteron.gpu.call import Feed
from pteron.gpu.device import Copy, Device
from pteron.gpu.executor import Executor
from pteron.gpu.placement import Placement
from pteron.gpu.staging import Pending, read_back
from pteron.gpu.state import State
from pteron.ir.live import Live
from pteron.ir.values import Port, SymInt, Tensor, ValueId, numel
from pteron.method_info import Memory, describe
from pteron.method_values import read_count, read_input, read_output
from pteron.plan.dynamic import dynamic_dims, explained, refusal
from pteron.plan.input_uses import index_inputs, input_elements
from pteron.plan.memory import aligned
from pteron.plan.rehearsal import rehearse
from pteron.plan.sweep import LiveGraph

T = TypeVar("T")

AS_IT_IS = host.kind_of(())


class Method:
    """A loaded method. Call it with arrays at any live shape. A call never allocates or compiles.

    Attributes:
        name: The name of the method.
        inputs: An `IOInfo` for each input: name, dtype, largest shape, dynamic dimensions.
        outputs: The same for each output.
    """

    def __init__(self, live: LiveGraph, device: Device, weights: Placement, program: Any = None) -> None:
        self.graph = live.graph
        self.name = self.graph.name
        self.program = program
        self._closed = False
        self._executor: Executor = None  # type: ignore[assignment]
        self.open_on(live, device, weights)
        self._elements = input_elements(self._live)
        self._indices = index_inputs(self._live)
        self._integer_outputs = [(p.name, p.value) for p in self.graph.outputs if isinstance(p.value, SymInt)]
        dims = dynamic_dims(self.graph, live)
        rehearse(live, dims)
        self.inputs = tuple(describe(port, dims.get(_id(port), ())) for port in self.graph.inputs)
        self.outputs = tuple(describe(port, dims.get(_id(port), ())) for port in self.graph.outputs)

    def open_on(self, live: LiveGraph, device: Device, weights: Placement) -> None:
        """Create everything that the method needs on a device. States of an earlier device are lost."""
        program = self.program
        progress, wait = getattr(program, "progress", None), getattr(program, "waits", True)
        executor = Executor(live, device, weights, progress, wait)
        try:
            spare = State(executor)
            executor.warm_up()
            executor.start()
        except BaseException:
            executor.close()
            raise
        if self._executor is not None:
            self._executor.stop()  # the device of this one is lost
        self.device, self._live, self._executor = device, live, executor
        self._default_state: State | None = None
        self._spare_state: State | None = spare  # used by the first caller that needs a state

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
            DeviceError: The GPU failed, or needed longer than `timeout`.
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
        given = self._in_order(inputs, named)
        arrays = self._read_inputs(given)
        with self.device.lock:
            copies, state = self._prepare(arrays, state)
            return self._launch(copies, state, keep_on_gpu, last_row, host.kind_of(given))

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
        arrays = self._read_inputs(self._in_order(inputs, {}))
        with self.device.lock:
            copies, state = self._prepare(arrays, state)
            return self._run_and_read(copies, state, True, look, host.borrowed)

    def _prepare(self, arrays: list[Any], state: State | None) -> tuple[list[Copy], State]:
        """Do everything for a call except running it."""
        self._check_open()
        state = self._state() if state is None else state
        self._check_mine(state)
        changes = self._changes(arrays)
        feeds = self._feeds(arrays)
        try:
            copies = call.prepare(self._executor, state, changes, feeds, lambda: self._check_indices(arrays))
        except InputError as error:
            raise explained(error, self._live, changes) from None
        return copies, state

    def _launch(
        self,
        copies: list[Copy],
        state: State,
        keep_on_gpu: bool = False,
        last_row: bool = False,
        as_given: AsGiven = AS_IT_IS,
    ) -> Pending[list[Any]]:
        if keep_on_gpu:
            return Pending.ready(self._run_and_keep(state, copies))
        return self._run_and_read(copies, state, last_row, partial(self._as_given, as_given))

    def _run_and_read(
        self,
        copies: list[Copy],
        state: State,
        last_row: bool,
        then: Callable[[list[Any]], T],
        from_gpu: Callable[..., Any] = host.from_gpu,
    ) -> Pending[T]:
        """Run the prepared call. The result is what `then` makes of its outputs."""
        reads = call.plan_reads(self._executor, last_row)
        integers = {name: self._integer(value) for name, value in self._integer_outputs}

        def finish(data: memoryview) -> T:
            counts = self.graph.counts
            return then(
                [read_output(port, data, reads, integers, counts, from_gpu) for port in self.graph.outputs]
            )

        return call.launch(self._executor, state, copies, reads.values(), finish)

    def _as_given(self, as_given: AsGiven, outputs: list[Any]) -> list[Any]:
        """Outputs in the kind of array that the inputs have."""
        return [
            as_given(value, port.host_type) if isinstance(port.value, Tensor) else value
            for port, value in zip(self.graph.outputs, outputs, strict=True)
        ]

    def _in_order(self, inputs: Sequence[Any], named: Mapping[str, Any]) -> Sequence[Any]:
        """The inputs in the order of the program. Some may be given by name."""
        ports = self._input_ports
        names = [port.name for port in ports[len(inputs) :]]
        if len(inputs) + len(named) == len(ports) and named.keys() == set(names):
            return (*inputs, *(named[name] for name in names))
        wanted = ", ".join(f"{p.name}: {p.host_type}{list(p.max_shape)}" for p in ports)
        by_name = f" and {', '.join(named)} by name" if named else ""
        raise InputError(
            f"method '{self.name}' takes {len(ports)} inputs ({wanted}), got {len(inputs)}{by_name}"
        )

    def _read_inputs(self, inputs: Sequence[Any]) -> list[Any]:
        """Convert each input to the GPU's format and check it. Nothing changes yet."""
        ports = self._input_ports
        return [read_input(port, value, self.device) for port, value in zip(ports, inputs, strict=True)]

    @property
    def _input_ports(self) -> Sequence[Port]:
        """The inputs that a caller gives."""
        return self.graph.inputs

    def _changes(self, arrays: list[Any]) -> dict[ValueId, Live]:
        changes: dict[ValueId, Live] = {}
        by_id: dict[ValueId, Any] = {}
        for port, array in zip(self.graph.inputs, arrays, strict=True):
            if isinstance(port.value, SymInt):
                changes[port.value.id] = array
            elif isinstance(port.value, Tensor):
                changes[port.value.id] = tuple(array.shape)
                by_id[port.value.id] = array
        for element in self._elements:
            changes[element.symint.id] = host.read_element(element, by_id[element.source.id])
        return changes

    def _feeds(self, arrays: list[Any]) -> list[Feed]:
        """The data for the input tensors."""
        feeds = []
        for port, array in zip(self.graph.inputs, arrays, strict=True):
            if not isinstance(port.value, Tensor):
                continue
            nbytes = numel(tuple(array.shape)) * port.value.dtype.itemsize
            if not nbytes:
                continue
            if isinstance(array, GpuArray):
                feeds.append(Feed(port.value, nbytes, buffer=array.buffer))
            else:
                feeds.append(Feed(port.value, nbytes, host.raw_bytes(array)))
        return feeds

    def _check_indices(self, arrays: list[Any]) -> None:
        """Check that indices are in range, at the live size of the tensor that they index."""
        checked = set()  # the layers of a model often have the same rules
        for index, tensor, place in self._indices:
            plan = self._live.plans[index]
            assert plan is not None
            for rule in plan.contents:
                known = (place, rule.low, rule.high)
                if (
                    rule.tensor.id == tensor
                    and not isinstance(arrays[place], GpuArray)
                    and known not in checked
                ):
                    checked.add(known)
                    host.check_contents(arrays[place], rule, self.graph.inputs[place].name)

    def _run_and_keep(self, state: State, before: list[Copy]) -> list[Any]:
        outputs: list[Any] = []
        after: list[Copy] = []
        for port in self.graph.outputs:
            if not isinstance(port.value, Tensor):
                fixed = self._integer(port.value) if isinstance(port.value, SymInt) else port.value
                outputs.append(fixed)
                continue
            shape = self._live.shape(port.value)
            nbytes = aligned(numel(shape) * port.value.dtype.itemsize)
            kept = self.device.storage(nbytes, f"{port.name} of {self.name}")
            if numel(shape):
                after.append((self._executor.buffer(port.value, state), 0, kept, 0, nbytes))
            outputs.append(GpuArray(self.device, kept, port.value.dtype, port.host_type, shape))
        self._executor.run(state, before, after)
        for port, kept in zip(self.graph.outputs, outputs, strict=True):
            counter = self.graph.counts.get(port.value.id) if isinstance(port.value, Tensor) else None
            if counter is not None:  # the length is known only on the GPU
                buffer = self._executor.buffer(counter, state)
                kept.shape = (read_back(self.device, buffer, 4, read_count), *kept.shape[1:])
        return outputs

    def _integer(self, value: SymInt) -> Live:
        return self._live.live[value.id]

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
            spare, self._spare_state = self._spare_state, None
            return spare or State(self._executor)

    def owns(self, state: State) -> bool:
        """Whether a state belongs to this method and its current device."""
        return state.executor is self._executor

    def reset(self) -> None:
        """Reset the default state to its initial contents."""
        with self.device.lock:
            self._check_open()
            self._state().reset()

    def _state(self) -> State:
        """The default state."""
        if self._default_state is None:
            self._default_state = self.new_state()
        return self._default_state

    def _check_open(self) -> None:
        if self._closed:
            raise PteronError(f"method '{self.name}' is closed")

    def _check_mine(self, state: State) -> None:
        if not isinstance(state, State):
            raise InputError(
                f"state must be made by method.new_state(), not a {type(state).__name__}: pass an input that "
                "is named state by position"
            )
        if not self.owns(state) and state.executor.graph is self.graph:
            raise InputError("the state was lost with its device: make another with method.new_state()")
        if not self.owns(state):
            raise InputError(f"the state belongs to another method than '{self.name}'")
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
            DeviceError: A kernel cannot be compiled, or the time was not enough.
        """
        self.device.check_usable()
        if self._executor.late is not None:
            self._executor.late.wait(timeout)

    @property
    def live_shapes(self) -> dict[str, Live]:
        """The shape of every input and output in the last call, by name. For an integer: its value."""
        ports = (*self.graph.inputs, *self.graph.outputs)
        live = self._live.live
        return html.Shapes({p.name: live[p.value.id] for p in ports if isinstance(p.value, (Tensor, SymInt))})

    def why_static(self, name: str, dim: int) -> str | None:
        """Say why a dimension of an input cannot be smaller.

        Args:
            name: The name of the input.
            dim: The number of the dimension, from 0.

        Returns:
            The error of the node that refuses a smaller size. None if the dimension is dynamic.
        """
        port = next((p for p in self.graph.inputs if p.name == name and isinstance(p.value, Tensor)), None)
        if port is None or not 0 <= dim < len(port.max_shape):
            raise InputError(f"{self!r} has no input {name} with a dimension {dim}")
        if not port.resizable:
            return "the program was exported with a static shape: export it with dynamic_shapes"
        with self.device.lock:
            error = refusal(self._live, port, dim)
        return None if error is None else str(error)

    @property
    def memory(self) -> Memory:
        """What the method needs on the GPU, by purpose."""
        executor = self._executor
        return Memory(
            executor.weights.nbytes,
            executor.memory.nbytes,
            sum(aligned(tensor.max_nbytes) for tensor in self.graph.states),
            executor.staging.nbytes,
            executor.params.nbytes,
        )

    @property
    def state_nbytes(self) -> int:
        """Bytes on the GPU of the KV caches of one conversation."""
        return self.memory.state

    def symint(self, name: str) -> int | float | None:
        """The current value of a SymInt (an integer that the program computes), by its name in `inspect`."""
        for value in self.graph.values:
            if value.name == name:
                return self._live.integer(value)
        raise PteronError(f"method '{self.name}' has no value named {name}")

    def close(self) -> None:
        """Free the method's GPU memory. Waits for a call in another thread."""
        with self.device.lock:
            if self._closed:
                return
            self._closed = True
            for state in (self._default_state, self._spare_state):
                if state is not None:
                    state.close()
            self._default_state = self._spare_state = None
            self._executor.close()

    def __reduce__(self) -> Any:
        """A method is pickled as its program and its name, without states."""
        if self.program is None:
            raise TypeError("a method without a program cannot be pickled")
        return type(self.program).method, (self.program, self.name)

    def __repr__(self) -> str:
        takes, gives = ", ".join(map(str, self.inputs)), ", ".join(map(str, self.outputs))
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
