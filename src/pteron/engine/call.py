"""One call: checks, the sweep, parameters, uploads, one submit, and a pending result.

Every step before the submit can be repeated, so a method still works after an interrupt. Two calls may be in
flight. The GPU works in order, so the second call may already write inputs and parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from pteron._util.progress import Progress
from pteron.compiler.ir.live import Live
from pteron.compiler.ir.values import Port, Shape, SymInt, Tensor, Value, ValueId, numel
from pteron.compiler.plan.input_uses import index_inputs, input_elements
from pteron.compiler.plan.memory import aligned
from pteron.compiler.plan.refused_by_node import NotPlanned
from pteron.compiler.plan.size_check import SizeCheck
from pteron.compiler.plan.size_errors import explained
from pteron.compiler.plan.sweep import LiveGraph
from pteron.engine.arrays import AsGiven, GpuArray, host
from pteron.engine.devices.device import Command, Copy, Device
from pteron.engine.executor import Executor
from pteron.engine.staging import Pending, read_back
from pteron.engine.state import State
from pteron.engine.state_memory import StateMemory
from pteron.engine.steps import Step
from pteron.engine.weight_store import WeightStore
from pteron.errors import InputError, PteronError

T = TypeVar("T")

AS_IT_IS = host.kind_of(())
POISON = b"\xff"  # NaN as a float, and out of range as an index


class Read(NamedTuple):
    """The last part of a tensor, in a staging buffer. Copies begin and end at multiples of four bytes."""

    tensor: Tensor
    shape: Shape
    source: int
    place: int
    nbytes: int
    skip: int  # bytes from the start of the copy to the first element
    end: int  # where the next read may begin

    @classmethod
    def of(cls, tensor: Tensor, live: Shape, wanted: Shape, place: int) -> Read:
        end = numel(live) * tensor.dtype.itemsize
        start = end - numel(wanted) * tensor.dtype.itemsize
        source = start & ~3
        nbytes = aligned(end - source, 4) if end else 0
        return cls(tensor, wanted, source, place, nbytes, start - source, place + aligned(nbytes, 8))

    def bytes_in(self, staged: memoryview) -> memoryview:
        return staged[self.place + self.skip : self.place + self.nbytes]


class Calls:
    """Prepares the calls of a method. It has what they share: GPU resources, and what is to be checked."""

    def __init__(
        self,
        live: LiveGraph,
        device: Device,
        weights: WeightStore,
        states: StateMemory | None = None,
        progress: Progress | None = None,
        wait: bool = True,
    ) -> None:
        """See `Executor`."""
        self.graph = live.graph
        self.live = live
        self.tensors = [(n, p.value) for n, p in enumerate(self.graph.inputs) if isinstance(p.value, Tensor)]
        self._inputs = [
            (n, p.value.id) for n, p in enumerate(self.graph.inputs) if isinstance(p.value, (Tensor, SymInt))
        ]
        places = {tensor.id: place for place, tensor in self.tensors}
        self._elements = [(element, places[element.source.id]) for element in input_elements(live)]
        self._indices = index_inputs(live)
        self._sizes = SizeCheck(self.graph)
        self._reads: tuple[Any, dict[ValueId, Read]] = (None, {})  # the last ones, and what they are for
        self.executor = Executor(live, device, weights, progress, wait, states).open()

    def prepare(self, arrays: Sequence[Any], state: State, as_given: AsGiven = AS_IT_IS) -> Call:
        """Do everything for a call except running it. The caller holds the device's lock.

        Raises InputError if the inputs do not fit. Then nothing has changed.
        """
        changes = self._changes(arrays)
        if changes == self.live.at:
            self._check_indices(arrays)
        else:
            self._sizes.check(changes)
            self._sweep(changes, arrays)
        return Call(self, arrays, state, as_given)

    def plan_ahead(self, changes: Mapping[ValueId, Live]) -> None:
        """Plan a call before it is made. Raises InputError if it would be refused."""
        self._sizes.check(changes)
        try:
            self.live.plan_ahead(changes)
        except InputError as error:
            raise explained(error, self.live, changes) from None

    def _changes(self, arrays: Sequence[Any]) -> dict[ValueId, Live]:
        """The shapes and integers of a call."""
        changes: dict[ValueId, Live] = {}
        for place, value in self._inputs:
            given = arrays[place]
            changes[value] = given if isinstance(given, int) else tuple(given.shape)
        for element, place in self._elements:
            changes[element.symint.id] = host.read_element(element, arrays[place])
        return changes

    def _sweep(self, changes: Mapping[ValueId, Live], arrays: Sequence[Any]) -> None:
        live = self.live
        try:
            live.begin(changes)
        except NotPlanned:
            raise InputError(self._unexpected(changes)) from None
        except InputError as error:
            raise explained(error, live, changes) from None
        try:
            self._check_indices(arrays)
        except BaseException:
            live.undo()
            raise
        live.commit(changes)

    def _unexpected(self, changes: Mapping[ValueId, Live]) -> str:
        given = ", ".join(
            f"{port.name} is {changes[port.value.id]}"
            for port in self.graph.inputs
            if isinstance(port.value, (Tensor, SymInt))
        )
        return (
            f"{given}, which is not expected: the program was loaded with only_expected=True. Add these "
            "shapes to expect=, or load it without only_expected"
        )

    def _check_indices(self, arrays: Sequence[Any]) -> None:
        """Check that indices are in range, at the live size of the tensor that they index."""
        checked = set()  # the layers of a model often have the same rules
        for index, tensor, place in self._indices:
            plan = self.live.plans[index]
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

    def reads(self, last_row: bool) -> dict[ValueId, Read]:
        """How much of each output is read, and its position in the staging buffer."""
        live = self.live.current
        wanted = last_row, [live[tensor.id] for tensor in self.executor.results]
        known, reads = self._reads
        if known != wanted:
            reads = {}
            place = 0
            for tensor in self.executor.results:
                if tensor.id not in reads:
                    shape = self.live.shape(tensor)
                    part = shape[-1:] if last_row and numel(shape) else shape
                    reads[tensor.id] = read = Read.of(tensor, shape, part, place)
                    place = read.end
            self._reads = wanted, reads
        return reads


class Call:
    """A call that is ready to run. Its inputs are on the GPU, and the plans are those of its shapes.

    It runs once: as a whole (`submit`), or node by node (`steps`).
    """

    def __init__(self, calls: Calls, arrays: Sequence[Any], state: State, as_given: AsGiven) -> None:
        self._calls = calls
        self._arrays = arrays
        self._as_given = as_given
        self._spent = ""  # why it cannot run any more
        self._walks = False  # whether a step has run
        self._walked = False  # whether all have run
        self.executor = calls.executor
        self.state = state
        self._upload()

    def _upload(self) -> None:
        """Write parameters and inputs. What is on the GPU already is copied when the call runs."""
        executor, device = self.executor, self.executor.device
        executor.refresh()
        targets = [(executor.buffer(tensor, self.state), place) for place, tensor in self._calls.tensors]
        self._copies: list[Copy] = []
        for target, place in targets:
            array = self._arrays[place]
            if isinstance(array, GpuArray) and array.nbytes:
                self._copies.append((array.buffer, 0, target, 0, aligned(array.nbytes, 4)))
            elif 0 not in array.shape:
                device.write(target, 0, host.raw_bytes(array))

    # -- as a whole -----------------------------------------------------------------------------

    def submit(self, *, keep_on_gpu: bool = False, last_row: bool = False) -> Pending[list[Any]]:
        """Start the call.

        Args:
            keep_on_gpu: The outputs are `GpuArray`s.
            last_row: Read back only the last row of each output.

        Returns:
            A `Pending` with the list of outputs.
        """
        if keep_on_gpu:
            return self._keep()
        if self._as_given is AS_IT_IS:
            return self.read_back(list, last_row)
        return self.read_back(partial(in_kind, self._as_given, self._calls.graph.outputs), last_row)

    def read_back(
        self,
        then: Callable[[list[Any]], T],
        last_row: bool = False,
        from_gpu: Callable[..., Any] = host.from_gpu,
    ) -> Pending[T]:
        """Start the call. The result is what `then` makes of the outputs."""
        graph, reads = self._calls.graph, self._calls.reads(last_row)
        counts, integers = graph.counts, self._integers()

        def finish(data: memoryview) -> T:
            return then([_output(port, data, reads, integers, counts, from_gpu) for port in graph.outputs])

        return self._run(reads.values(), finish, [])

    def _integers(self) -> dict[ValueId, Live]:
        """The outputs that are integers."""
        live = self._calls.live.current
        return {
            p.value.id: live[p.value.id] for p in self._calls.graph.outputs if isinstance(p.value, SymInt)
        }

    def _keep(self) -> Pending[list[Any]]:
        """Start the call. Only the lengths that the GPU has counted are read back."""
        executor, graph = self.executor, self._calls.graph
        integers = self._integers()
        outputs: list[Any] = []
        kept: list[Copy] = []
        for port in graph.outputs:
            if not isinstance(port.value, Tensor):
                outputs.append(integers[port.value.id] if isinstance(port.value, SymInt) else port.value)
                continue
            shape = self.shape(port.value)
            nbytes, most = aligned(numel(shape) * port.value.dtype.itemsize), aligned(port.value.max_nbytes)
            buffer = executor.kept.take(nbytes, most, f"{port.name} of {graph.name}")
            give_back = executor.kept.give_back
            outputs.append(
                GpuArray(executor.device, buffer, port.value.dtype, port.host_type, shape, give_back)
            )
            if numel(shape):
                kept.append((executor.buffer(port.value, self.state), 0, buffer, 0, nbytes))
        planned = self._calls.reads(False) if graph.counts else {}
        counted = [
            (output, planned[graph.counts[port.value.id].id])
            for port, output in zip(graph.outputs, outputs, strict=True)
            if isinstance(port.value, Tensor) and port.value.id in graph.counts
        ]

        def finish(data: memoryview) -> list[Any]:
            for output, read in counted:
                output.shape = (_count(read.bytes_in(data)), *output.shape[1:])
            return outputs

        return self._run(sorted({read for _, read in counted}, key=lambda read: read.place), finish, kept)

    def _run(self, reads: Iterable[Read], finish: Callable[[memoryview], T], kept: list[Copy]) -> Pending[T]:
        """Submit. `finish` makes the result from the bytes that are read back.

        kept: the copies of outputs that stay on the GPU.
        """
        self._check_fresh()
        self._spent = "has run"
        executor, state = self.executor, self.state
        used = [read for read in reads if read.nbytes]
        if not used:
            if not self._walked:
                executor.run(state, self._copies, kept)
            return Pending.ready(finish(memoryview(b"")))
        pending = Pending(finish)
        staging = executor.staging.take(pending)
        after = kept.copy()
        for read in used:
            source = executor.buffer(read.tensor, state)
            after.append((source, read.source, staging.buffer, read.place, read.nbytes))
        if self._walked:
            submission = executor.device.submit(self._copies, (), after)
        elif self._copies or kept:
            submission = executor.run(state, self._copies, after)
        else:
            submission = executor.run_and_stage(state, after)
        pending.arrives_in(staging, used[-1].end, submission)
        return pending

    # -- node by node ---------------------------------------------------------------------------

    def steps(self) -> list[Step]:
        """The nodes of the call, in program order. Nothing runs before `Step.run`."""
        return [Step(self, node) for node in self._calls.graph.nodes]

    def poison(self) -> None:
        """Fill the memory between nodes: what a node reads and no node has written is then wrong."""
        self._check_fresh()
        for buffer in self.executor.activations:
            self.executor.device.write(buffer, 0, POISON * buffer.size)
        self._upload()

    def shape(self, tensor: Tensor) -> Shape:
        """The live shape of a tensor."""
        return self._calls.live.shape(tensor)

    def read(self, value: Value) -> Any:
        """Read a tensor as it is now, or an integer.

        Returns:
            An array with the dtype of the GPU; bfloat16 is read as float32.
        """
        if isinstance(value, SymInt):
            return self._calls.live.integer(value)
        shape, dtype = self.shape(value), value.dtype
        nbytes = numel(shape) * dtype.itemsize
        if not nbytes:
            return host.empty(shape, dtype.label)
        buffer = self.executor.buffer(value, self.state)
        return read_back(
            self.executor.device,
            buffer,
            nbytes,
            lambda data: host.from_gpu(data[:nbytes], dtype, dtype.label, shape),
        )

    def run_step(self, commands: Sequence[Command]) -> None:
        """Run the commands of a step. The first step also brings in what is on the GPU already."""
        if self._spent:
            raise PteronError(f"the call {self._spent}: prepare another")
        self._walks = True
        self.executor.device.submit(self._copies, commands, ())
        self._copies = []

    def results(self) -> list[Any]:
        """The outputs, after all steps have run. No step can run after that."""
        self._walks, self._walked = False, True
        return self.submit().result()

    def end(self) -> None:
        """Refuse to run later: another call may have other plans and inputs."""
        self._spent = self._spent or "is over"

    def _check_fresh(self) -> None:
        if self._spent or self._walks:
            raise PteronError(f"the call {self._spent or 'runs step by step'}: prepare another")


def in_kind(as_given: AsGiven, ports: Sequence[Port], outputs: list[Any]) -> list[Any]:
    """Outputs in the kind of array that the inputs have."""
    return [
        as_given(value, port.host_type) if isinstance(port.value, Tensor) else value
        for port, value in zip(ports, outputs, strict=True)
    ]


def _output(
    port: Port,
    data: memoryview,
    reads: dict[ValueId, Read],
    integers: dict[ValueId, Live],
    counts: dict[ValueId, Tensor],
    from_gpu: Callable[..., Any],
) -> Any:
    """An output of a call. `data` are the bytes of all its reads."""
    if isinstance(port.value, SymInt):
        return integers[port.value.id]
    if not isinstance(port.value, Tensor):
        return port.value
    read = reads[port.value.id]
    if read.nbytes:
        array = from_gpu(read.bytes_in(data), port.value.dtype, port.host_type, read.shape)
    else:
        array = host.empty(read.shape, port.host_type)
    counter = counts.get(port.value.id)
    return array if counter is None else host.first(array, _count(reads[counter.id].bytes_in(data)))


def _count(data: memoryview) -> int:
    """The number of elements that a kernel has counted."""
    return int.from_bytes(data[:4], "little", signed=True)
