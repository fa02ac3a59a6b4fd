"""The mutable tensors (KV caches) of one conversation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from pteron.compiler.ir.values import Tensor, numel
from pteron.compiler.plan.memory import aligned
from pteron.engine.buffers import Buffers
from pteron.engine.devices.device import Buffer, Copy
from pteron.engine.staging import read_parts
from pteron.errors import InputError, PteronError

if TYPE_CHECKING:
    from pteron.engine.state_memory import StateMemory


# The bytes (offset, count) of a state's tensor that are read, written or copied.
Part: TypeAlias = Callable[[Tensor], list[tuple[int, int]]]


def everything(tensor: Tensor) -> list[tuple[int, int]]:
    return [(0, aligned(tensor.max_nbytes, 4))]


def first_positions(count: int, length: int) -> Part:
    """The first `count` positions of KV caches that have room for `length` positions.

    The positions of a cache are the dimension of this length. A tensor is taken whole if it has no such
    dimension, or two, or if its positions do not begin at whole words.
    """

    def part(tensor: Tensor) -> list[tuple[int, int]]:
        found = [d for d, size in enumerate(tensor.max_shape) if size == length]
        if len(found) != 1:
            return everything(tensor)
        row = numel(tensor.max_shape[found[0] + 1 :]) * tensor.dtype.itemsize
        if row % 4:
            return everything(tensor)
        blocks = numel(tensor.max_shape[: found[0]])
        return [(block * length * row, count * row) for block in range(blocks)] if count else []

    return part


class State:
    """The mutable tensors (KV caches) of one conversation. `Method.new_state` makes it.

    A state begins with the contents in the file, or with zeros. Methods that share buffers take the same
    states.
    """

    def __init__(self, memory: StateMemory, slots: int = 1) -> None:
        """slots: of how many conversations. More than one only for a method that runs several."""
        self.memory = memory
        self.slots = slots
        self.device = memory.device
        self.tensors = memory.tensors  # of one conversation
        self.closed = False
        with Buffers(memory.device) as owned:
            self.buffers: list[Buffer] = [
                owned.storage(self._nbytes(tensor), f"state {tensor.name}") for tensor in memory.tensors
            ]
            self._owned = owned
            self.nbytes = owned.nbytes
            self.reset()

    def offset(self, tensor: Tensor) -> int:
        """Offset of a tensor's bytes in its buffer."""
        return 0

    def _nbytes(self, tensor: Tensor) -> int:
        return aligned(tensor.max_nbytes // self.memory.slots * self.slots)

    def _parts(self, tensor: Tensor, part: Part) -> list[tuple[int, int]]:
        """A part of a tensor, as bytes of its buffer."""
        first = self.offset(tensor)
        return [(first + offset, size) for offset, size in part(tensor)]

    def _pairs(self) -> Iterator[tuple[Tensor, Buffer]]:
        return zip(self.tensors, self.buffers, strict=True)

    def reset(self) -> None:
        """Reset to the contents in the file, or to zeros."""
        with self.device.lock:
            self.check_open()
            copies: list[Copy] = []
            cleared: list[tuple[Buffer, int, int]] = []
            for number, (tensor, buffer) in enumerate(self._pairs()):
                offset, nbytes = self.offset(tensor), self._nbytes(tensor)
                start = self.memory.pristine.get(number)
                if start is None:
                    cleared.append((buffer, offset, nbytes))
                else:
                    copies.append((start, offset, buffer, offset, nbytes))
            self.device.clear(cleared)
            if copies:
                self.device.submit(copies, (), ())

    def read(self, part: Part = everything) -> list[bytes]:
        """The contents of each tensor, or of a part of it, in the order of the program."""
        self.check_open()
        contents = []
        for tensor, buffer in self._pairs():
            spans = self._parts(tensor, part)
            contents.append(read_parts(self.device, buffer, spans, bytes) if spans else b"")
        return contents

    def sizes(self, part: Part = everything) -> list[int]:
        """How many bytes `read` gives, and `write` takes, for each tensor."""
        return [sum(size for _, size in part(tensor)) for tensor in self.tensors]

    def write(self, contents: Sequence[bytes | memoryview], part: Part = everything) -> None:
        """Write what `read` gave for the same part. Nothing changes if a size is wrong."""
        if [len(data) for data in contents] != self.sizes(part):
            raise InputError("the contents do not have the sizes of this state's tensors")
        with self.device.lock:
            self.check_open()
            for (tensor, buffer), data in zip(self._pairs(), contents, strict=True):
                place = 0
                for offset, size in self._parts(tensor, part):
                    self.device.write(buffer, offset, data[place : place + size])
                    place += size

    def copy_from(self, other: State, part: Part = everything) -> None:
        """Copy the contents of another state of the same methods, on the GPU."""
        if other.memory is not self.memory:
            raise InputError("the other state belongs to another method or device")
        with self.device.lock:
            self.check_open()
            other.check_open()
            copies = self._copies_from(other, part)
            if copies:
                self.device.submit(copies, (), ())

    def _copies_from(self, other: State, part: Part) -> list[Copy]:
        return [
            (source, offset, target, offset, size)
            for (tensor, target), source in zip(self._pairs(), other.buffers, strict=True)
            for offset, size in part(tensor)
        ]

    def __reduce__(self) -> Any:
        raise TypeError("a state belongs to one GPU and cannot be pickled: make a new one where it is needed")

    def check_open(self) -> None:
        if self.closed:
            raise PteronError("the state is closed: make another with method.new_state()")

    def close(self) -> None:
        """Free its memory. A second close does nothing."""
        with self.device.lock:
            self.closed = True
            self.buffers = []
            self._owned.free()
