"""A method whose calls run the next tokens of several conversations at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

import numpy as np

from pteron._util.progress import Progress
from pteron.api.expected_shapes import ShapeRecord
from pteron.api.method import Method
from pteron.api.method_info import describe
from pteron.compiler.ir.values import Port, Tensor
from pteron.compiler.plan.sweep import LiveGraph
from pteron.compiler.segments.graph import SegmentedGraph
from pteron.engine.arrays import AsGiven, GpuArray, host
from pteron.engine.call import AS_IT_IS, Call, Calls, in_kind
from pteron.engine.devices.device import Device
from pteron.engine.inputs import Inputs
from pteron.engine.slots import Slot, Slots
from pteron.engine.staging import Pending
from pteron.engine.state import State
from pteron.engine.weight_store import WeightStore
from pteron.errors import InputError, PteronError

if TYPE_CHECKING:
    from pteron.api.program import Program

T = TypeVar("T")
Array: TypeAlias = np.ndarray[Any, Any]
Segment: TypeAlias = tuple[Sequence[Any], State | None]


class Placed(NamedTuple):
    """A segment of a call: its inputs, its slot, and where its rows are."""

    arrays: Sequence[Any]
    slot: Slot
    position: int
    first: int  # row
    rows: int

    @property
    def end(self) -> int:
        return self.first + self.rows


class SegmentedMethod(Method):
    """A method that was loaded with `segments=`: one call can run several sequences.

    A normal call runs one sequence. `submit_many` runs several. A state is a slot in buffers that all
    conversations share.
    """

    graph: SegmentedGraph

    def __init__(
        self,
        live: LiveGraph,
        device: Device,
        weights: WeightStore,
        program: Program | None = None,
        progress: Progress | None = None,
        wait: bool = True,
    ) -> None:
        """See `Method`."""
        assert isinstance(live.graph, SegmentedGraph)
        self._slots: Slots | None = None
        super().__init__(live, device, weights, program, None, progress, wait)
        self._inputs = Inputs(self.name, live.graph.program_inputs)
        self.segments = live.graph.most
        known = {info.name: info for info in self.inputs}
        self.inputs = tuple(known.get(port.name) or describe(port, ()) for port in live.graph.program_inputs)
        self.outputs = tuple(
            describe(port, () if rows is None or port.max_shape[rows.dim] == 1 else (rows.dim,))
            for port, rows in zip(live.graph.program_outputs, live.graph.output_rows, strict=True)
        )

    def _use(self, calls: Calls) -> None:
        super()._use(calls)
        self._slots = Slots(self._executor.states.new(), self.graph.slot_count)
        self._default_slot: State | None = None

    # -- calls ----------------------------------------------------------------------------------

    def execute_many(self, calls: Sequence[Segment], *, timeout: float | None = None) -> list[list[Any]]:
        """Run several segments in one call. Returns the outputs of each. See `submit_many`."""
        return self.submit_many(calls).result(timeout)

    def submit_many(self, calls: Sequence[Segment]) -> Pending[list[list[Any]]]:
        """Start one call with several segments.

        Each segment has one or more tokens, at its own position of its own conversation. Together they have
        at most as many tokens as one call of the program.

        Args:
            calls: For each segment, a pair of the program's inputs and a state.

        Returns:
            A `Pending` with the outputs of each segment.

        Raises:
            InputError: A segment does not fit. Nothing has changed.
        """
        as_given = host.kind_of([array for inputs, _ in calls for array in inputs])
        return self._submit_many(
            calls,
            lambda outputs, placed: self._divided(in_kind(as_given, self.graph.outputs, outputs), placed),
        )

    def submit_many_and_look(
        self, calls: Sequence[Segment], looks: Sequence[Callable[[list[Any]], T]]
    ) -> Pending[list[T]]:
        """Start one call with several segments, whose outputs are looked at, but not copied.

        Args:
            calls: As for `submit_many`.
            looks: For each segment, a function that gets its outputs. See `submit_and_look`.

        Returns:
            A `Pending` with the results of these functions.
        """

        def finish(outputs: list[Any], placed: list[Placed]) -> list[T]:
            divided = self._divided(outputs, placed)
            return [look(own) for look, own in zip(looks, divided, strict=True)]

        return self._submit_many(calls, finish, host.borrowed)

    def _submit_many(
        self,
        calls: Sequence[Segment],
        then: Callable[[list[Any], list[Placed]], T],
        from_gpu: Callable[..., Any] = host.from_gpu,
    ) -> Pending[T]:
        self.device.check_usable()
        read = self._read(calls)
        with self.device.lock:
            self._check_open()
            placed = self._placed(read)
            call = self._prepared_together(placed)
            return call.read_back(lambda outputs: then(outputs, placed), False, from_gpu)

    @contextmanager
    def prepare_many(self, calls: Sequence[Segment]) -> Iterator[Call]:
        """Do everything for one call with several segments except running it: see `Method.prepare`.

        Args:
            calls: As for `submit_many`.

        Yields:
            A `Call`.
        """
        self.device.check_usable()
        read = self._read(calls)
        with self.device.lock:
            self._check_open()
            call = self._prepared_together(self._placed(read))
            try:
                yield call
            finally:
                call.end()

    def record_shapes(self, path: str | Path) -> ShapeRecord:
        """Refuse: what a call of several sequences runs is no call that `load(expect=)` could plan."""
        raise PteronError(f"method '{self.name}' was loaded with segments=: to record shapes, leave it out")

    def _prepared(self, arrays: Sequence[Any], state: State | None, as_given: AsGiven = AS_IT_IS) -> Call:
        self._check_open()
        return self._prepared_together(self._placed([(arrays, state)]), as_given)

    def _prepared_together(self, placed: list[Placed], as_given: AsGiven = AS_IT_IS) -> Call:
        assert self._slots is not None
        inputs = [
            self._joined(number, dim, placed)
            for number, dim in enumerate(self.graph.input_dims)
            if dim is not None
        ]
        return self._calls.prepare([*inputs, *self._tables(placed)], self._slots.shared, as_given)

    def _read(self, calls: Sequence[Segment]) -> list[tuple[Sequence[Any], State | None]]:
        return [
            (self._inputs.read(self._inputs.in_order(inputs, {}), self.device), state)
            for inputs, state in calls
        ]

    # -- checks ---------------------------------------------------------------------------------

    def _placed(self, calls: list[tuple[Sequence[Any], State | None]]) -> list[Placed]:
        """The segments, with their rows one after another. Refuses those that do not fit."""
        if not 1 <= len(calls) <= self.segments:
            raise InputError(f"a call takes 1 to {self.segments} segments, got {len(calls)}")
        placed: list[Placed] = []
        users: dict[int, int] = {}  # the segment that uses each slot
        for number, (arrays, given) in enumerate(calls):
            state = given or self._state()
            self._check_mine(state)
            assert isinstance(state, Slot)
            if state.number in users:
                raise InputError(
                    f"segments {users[state.number]} and {number} have the same state: put the tokens of a "
                    f"conversation into one segment"
                )
            users[state.number] = number
            first = placed[-1].end if placed else 0
            segment = Placed(arrays, state, self._position(arrays), first, self._rows(arrays, number))
            self._check_room(segment, number)
            placed.append(segment)
        most, total = self._most_rows, placed[-1].end
        if total > most:
            raise InputError(
                f"the {len(placed)} segments have {total} tokens, but the program takes at most {most} in a "
                f"call: give it fewer segments, or a part of the tokens"
            )
        return placed

    @property
    def _most_rows(self) -> int:
        """The largest number of tokens in a call."""
        port, dim = self.graph.program_inputs[0], self.graph.input_dims[0]
        assert dim is not None
        return port.max_shape[dim]

    def _rows(self, arrays: Sequence[Any], number: int) -> int:
        counts = {
            array.shape[dim]
            for array, dim in zip(arrays, self.graph.input_dims, strict=True)
            if dim is not None
        }
        if len(counts) != 1 or 0 in counts:
            raise InputError(
                f"segment {number} has {' and '.join(map(str, sorted(counts)))} tokens: its inputs must have "
                f"the same number, at least 1"
            )
        return int(counts.pop())

    def _position(self, arrays: Sequence[Any]) -> int:
        place = self.graph.position_input
        if place is None:
            return 0
        array = arrays[place]
        return int((array.numpy() if isinstance(array, GpuArray) else array).reshape(-1)[0])

    def _check_room(self, segment: Placed, number: int) -> None:
        capacity = self.graph.capacity
        if capacity and not 0 <= segment.position <= capacity - segment.rows:
            raise InputError(
                f"segment {number}: position {segment.position} plus {segment.rows} new tokens does not fit "
                f"the cache of {capacity} positions"
            )

    # -- inputs and outputs ---------------------------------------------------------------------

    def _joined(self, number: int, dim: int, placed: list[Placed]) -> Any:
        """An input of the program with the rows of all segments."""
        if len(placed) == 1:
            return placed[0].arrays[number]
        port = self.graph.program_inputs[number]
        return np.ascontiguousarray(
            np.concatenate([_on_host(segment.arrays[number], port) for segment in placed], dim)
        )

    def _tables(self, placed: list[Placed]) -> Iterator[Array]:
        """See `SegmentedGraph`."""
        graph = self.graph
        few = [s for s in placed if s.rows < graph.few_rows]
        tiles = [
            (first, min(graph.tile_rows, s.end - first))
            for s in placed
            if s.rows >= graph.few_rows
            for first in range(s.first, s.end, graph.tile_rows)
        ]
        yield np.repeat([s.slot.number for s in placed], [s.rows for s in placed]).astype(np.int32)
        yield _concatenated([np.arange(s.position, s.position + s.rows) for s in placed])
        yield _concatenated([np.arange(s.first, s.end) for s in few])
        yield np.array(tiles, np.int32).reshape(-1, 2)
        yield np.array([s.end - 1 for s in placed], np.int32)

    def _divided(self, outputs: list[Any], placed: list[Placed]) -> list[list[Any]]:
        """The outputs of each segment."""
        results: list[list[Any]] = [[] for _ in placed]
        for output, rows in zip(outputs, self.graph.output_rows, strict=True):
            for number, segment in enumerate(placed):
                if rows is None:
                    results[number].append(output)
                    continue
                part = slice(number, number + 1) if rows.is_last else slice(segment.first, segment.end)
                results[number].append(output[(slice(None),) * rows.dim + (part,)])
        return results

    # -- states ---------------------------------------------------------------------------------

    def new_state(self) -> State:
        """A free slot for a conversation. `close` makes it free again."""
        self.device.check_usable()
        with self.device.lock:
            self._check_open()
            assert self._slots is not None
            slot = self._slots.take()
            self._executor.use(self._slots.shared)  # so that the next call makes no bind groups
            return slot

    def _state(self) -> State:
        if self._default_slot is None:
            self._default_slot = self.new_state()
        return self._default_slot

    @property
    def free_states(self) -> int:
        """The number of free slots."""
        return 0 if self._slots is None else self._slots.free

    @property
    def state_nbytes(self) -> int:
        return self.memory.state // self.graph.slot_count

    def close(self) -> None:
        with self.device.lock:
            super().close()
            if self._slots is not None:
                self._slots.close()
                self._slots = None


def _on_host(array: Any, port: Port) -> Array:
    if isinstance(array, GpuArray):
        assert isinstance(port.value, Tensor)
        array = host.to_gpu(array.numpy(), port.host_type, port.value.dtype, port.name)
    found: Array = array
    return found


def _concatenated(parts: list[Array]) -> Array:
    return np.concatenate(parts, dtype=np.int32, casting="unsafe") if parts else np.empty(0, np.int32)
