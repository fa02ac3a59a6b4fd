"""States of a method that runs several conversations in one call: slots of one set of buffers."""

from __future__ import annotations

import weakref
from dataclasses import replace
from typing import TYPE_CHECKING

from pteron.errors import PteronError
from pteron.gpu.buffers import Buffers
from pteron.gpu.device import Copy
from pteron.gpu.state import Part, State
from pteron.ir.values import Tensor
from pteron.plan.memory import aligned

if TYPE_CHECKING:
    from pteron.gpu.executor import Executor


class Slot(State):
    """The KV caches of one conversation. Closing it makes the slot free for another one."""

    def __init__(self, owner: Slots, number: int) -> None:
        self.executor = owner.shared.executor
        self.tensors = owner.tensors
        self.number = number
        self.closed = False
        self.buffers = owner.shared.buffers
        self.nbytes = sum(tensor.max_nbytes for tensor in self.tensors)
        self._owner = owner
        self._give_back = weakref.finalize(self, owner.give_back, number)

    def offset(self, tensor: Tensor) -> int:
        return self.number * tensor.max_nbytes

    def _nbytes(self, tensor: Tensor) -> int:
        return tensor.max_nbytes

    def _copies_from(self, other: State, part: Part) -> list[Copy]:
        """WebGPU cannot copy inside one buffer, so the bytes go through another one."""
        copies: list[Copy] = []
        between = self._owner.between
        for tensor in self.tensors:
            buffer = self.buffers[tensor.id]
            for (source, size), (target, _) in zip(
                other._parts(tensor, part), self._parts(tensor, part), strict=True
            ):
                copies += [(buffer, source, between, 0, size), (between, 0, buffer, target, size)]
        return copies

    def close(self) -> None:
        """Free the slot. A second close does nothing."""
        with self.executor.device.lock:
            self.closed = True
            self._give_back()


class Slots:
    """All slots of a method, and which of them are free."""

    def __init__(self, executor: Executor, shared: State, count: int) -> None:
        self.shared = shared  # the state with the buffers of all slots
        self.count = count
        self.tensors = [replace(t, max_shape=(1, *t.max_shape[1:])) for t in executor.graph.states]
        self._free = list(range(count))
        self._used: set[int] = set()  # slots that must be reset before the next use
        self._owned = Buffers(executor.device)
        largest = max((tensor.max_nbytes for tensor in self.tensors), default=0)
        self.between = self._owned.storage(aligned(largest), "between slots")

    @property
    def free(self) -> int:
        """The number of free slots."""
        return len(self._free)

    def take(self) -> Slot:
        if not self._free:
            raise PteronError(
                f"all {self.count} slots for conversations are in use: close a session or a state, or load "
                f"the program with more segments"
            )
        slot = Slot(self, min(self._free))
        self._free.remove(slot.number)
        if slot.number in self._used:
            slot.reset()
        self._used.add(slot.number)
        return slot

    def give_back(self, number: int) -> None:
        self._free.append(number)

    def close(self) -> None:
        self.shared.close()
        self._owned.free()
