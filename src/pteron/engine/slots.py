"""States of a method that runs several conversations in one call: slots of one set of buffers."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import replace

from pteron.compiler.ir.values import Tensor
from pteron.compiler.plan.memory import aligned
from pteron.engine.buffers import Buffers
from pteron.engine.devices.device import Buffer, Copy
from pteron.engine.state import Part, State
from pteron.errors import OutOfMemory, PteronError


class Slot(State):
    """The KV caches of one conversation. Closing it makes the slot free for another one."""

    def __init__(self, owner: Slots, number: int) -> None:
        self.memory = owner.shared.memory
        self.device = owner.shared.device
        self.tensors = owner.tensors
        self.number = number
        self.closed = False
        self.nbytes = sum(tensor.max_nbytes for tensor in self.tensors)
        self._owner = owner

    @property
    def buffers(self) -> list[Buffer]:  # type: ignore[override]
        """They change when another conversation comes."""
        return self._owner.shared.buffers

    def offset(self, tensor: Tensor) -> int:
        return self.number * tensor.max_nbytes

    def _nbytes(self, tensor: Tensor) -> int:
        return tensor.max_nbytes

    def _copies_from(self, other: State, part: Part) -> list[Copy]:
        """WebGPU cannot copy inside one buffer, so the bytes go through another one."""
        copies: list[Copy] = []
        between = self._owner.between
        for tensor, buffer in self._pairs():
            for (source, size), (target, _) in zip(
                other._parts(tensor, part), self._parts(tensor, part), strict=True
            ):
                copies += [(buffer, source, between, 0, size), (between, 0, buffer, target, size)]
        return copies

    def close(self) -> None:
        """Free the slot. A second close does nothing."""
        with self.device.lock:
            self.closed = True


class Slots:
    """All slots of a method, and which of them are free. Their memory is taken when they are needed."""

    def __init__(self, shared: State, count: int) -> None:
        self.shared = shared  # the state with the buffers of the slots that have memory
        self.count = count
        self.tensors = [replace(t, max_shape=(1, *t.max_shape[1:])) for t in shared.tensors]
        # Who has each slot. A slot whose owner is closed or gone is free: nobody has to give it back.
        self._owners: list[Callable[[], Slot | None]] = [lambda: None] * count
        self._used: set[int] = set()  # slots that must be reset before the next use
        self._owned = Buffers(shared.device)
        largest = max((tensor.max_nbytes for tensor in self.tensors), default=0)
        self.between = self._owned.storage(aligned(largest), "between slots")

    @property
    def free(self) -> int:
        """The number of free slots."""
        return len(self._free)

    @property
    def _free(self) -> list[int]:
        owners = enumerate(owner() for owner in self._owners[: self.count])
        return [number for number, owner in owners if owner is None or owner.closed]

    def take(self) -> Slot:
        free = self._free
        if not free:
            raise PteronError(
                f"all {self.count} slots for conversations are in use: close a session or a state, or load "
                f"the program with more segments"
            )
        if free[0] >= self.shared.slots:
            self._grow()
        slot = Slot(self, free[0])
        self._owners[slot.number] = weakref.ref(slot)
        if slot.number in self._used:
            slot.reset()
        self._used.add(slot.number)
        return slot

    def _grow(self) -> None:
        """Double the memory, up to the limit. If the device has not enough, there are no more slots."""
        small = self.shared
        try:
            large = State(small.memory, min(2 * small.slots, self.count))
        except OutOfMemory:
            self.count = small.slots
            raise
        copies = [(old, 0, new, 0, old.size) for old, new in zip(small.buffers, large.buffers, strict=True)]
        small.device.submit(copies, (), ())
        self.shared = large  # all slots see it at once
        small.close()

    def close(self) -> None:
        self.shared.close()
        self._owned.free()
