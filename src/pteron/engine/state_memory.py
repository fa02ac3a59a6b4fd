"""What a state consists of: the mutable tensors of a method, or of several methods that share buffers."""

from __future__ import annotations

from collections.abc import Sequence

from pteron.compiler.ir.values import Graph, Tensor, ValueId
from pteron.compiler.plan.memory import aligned
from pteron.compiler.segments.graph import SegmentedGraph
from pteron.engine.devices.device import Buffer, Device
from pteron.engine.state import State
from pteron.engine.weight_store import WeightStore, is_zero


class StateMemory:
    """Makes the states of some methods on one device. It has the state that calls use by default."""

    def __init__(self, graphs: Sequence[Graph], device: Device, weights: WeightStore) -> None:
        self.graphs = graphs
        self.device = device
        # The conversations that the tensors have room for. A state begins with room for one.
        self.slots = max((g.slot_count for g in graphs if isinstance(g, SegmentedGraph)), default=1)
        self.tensors: list[Tensor] = []  # one for each buffer of a state
        self._numbers: dict[object, int] = {}
        for graph in graphs:
            for tensor in graph.states:
                self._add(tensor, self._key(graph, tensor))
        self.pristine: dict[int, Buffer] = {  # the initial contents that are not zeros, by buffer
            number: weights.buffer(tensor)
            for number, tensor in enumerate(self.tensors)
            if tensor.constant is not None and not is_zero(tensor)
        }
        self.default: State | None = None  # of calls that give none; made at the first such call
        self._spare: State | None = None  # was made at load; the first who needs a state gets it
        self._made_one = False

    @staticmethod
    def _key(graph: Graph, tensor: Tensor) -> object:
        return graph.shared.get(tensor.id) or (graph.name, tensor.id)

    def _add(self, tensor: Tensor, key: object) -> None:
        number = self._numbers.setdefault(key, len(self.tensors))
        if number == len(self.tensors):
            self.tensors.append(tensor)
        elif self.tensors[number].constant is None:  # the first method may not have the initial contents
            self.tensors[number] = tensor

    def numbers(self, graph: Graph) -> dict[ValueId, int]:
        """The buffer of each state of a method."""
        return {tensor.id: self._numbers[self._key(graph, tensor)] for tensor in graph.states}

    @property
    def nbytes(self) -> int:
        """Bytes of one state."""
        return sum(aligned(tensor.max_nbytes) for tensor in self.tensors)

    def first(self) -> State | None:
        """Make the first state while a method is loaded, so that its first call allocates nothing."""
        if not self._made_one:
            self._spare = self.new()
        return self.default or self._spare

    def of_calls(self) -> State:
        """The state of calls that give none."""
        if self.default is None:
            self.default = self.new()
        return self.default

    def new(self) -> State:
        spare, self._spare = self._spare, None
        state = spare or State(self)
        self._made_one = True
        return state

    def close(self) -> None:
        for state in (self.default, self._spare):
            if state is not None:
                state.close()
        self.default = self._spare = None
