"""The mutable tensors of a method (KV caches), with the bind groups that use them. One per conversation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from pteron.errors import InputError, PteronError
from pteron.gpu.buffers import Buffers
from pteron.gpu.device import BindGroup, Buffer, Command, Copy
from pteron.gpu.record_ahead import RecordAhead
from pteron.gpu.staging import read_parts
from pteron.ir.values import Tensor, ValueId, numel
from pteron.plan.memory import aligned

if TYPE_CHECKING:
    from pteron.gpu.executor import Executor, Site


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

    A state begins with the contents in the file, or with zeros.
    """

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        self.tensors = executor.graph.states  # of one conversation
        self.closed = False
        self.commands: tuple[int, list[Command]] = (-1, [])  # with the version of the plan they belong to
        self.ahead = RecordAhead()
        with Buffers(executor.device) as owned:
            self.buffers: dict[ValueId, Buffer] = {
                tensor.id: owned.storage(aligned(tensor.max_nbytes), f"state {tensor.name}")
                for tensor in executor.graph.states
            }
            self.groups: dict[Site, BindGroup] = {
                site: executor.bind(site, self)
                for site in executor.sites
                if site.uses_state and site.pipeline is not None
            }
            self._owned = owned
            self.nbytes = owned.nbytes
            self.reset()

    def offset(self, tensor: Tensor) -> int:
        """Where the bytes of a tensor begin in its buffer."""
        return 0

    def _nbytes(self, tensor: Tensor) -> int:
        return self.buffers[tensor.id].size

    def _parts(self, tensor: Tensor, part: Part) -> list[tuple[int, int]]:
        """A part of a tensor, as bytes of its buffer."""
        first = self.offset(tensor)
        return [(first + offset, size) for offset, size in part(tensor)]

    def reset(self) -> None:
        """Reset to the contents in the file, or to zeros."""
        device = self.executor.device
        with device.lock:
            self.check_open()
            pristine = self.executor.pristine
            places = [(tensor.id, self.offset(tensor), self._nbytes(tensor)) for tensor in self.tensors]
            copies: list[Copy] = [
                (pristine[value], offset, self.buffers[value], offset, nbytes)
                for value, offset, nbytes in places
                if value in pristine
            ]
            device.clear(
                [
                    (self.buffers[value], offset, nbytes)
                    for value, offset, nbytes in places
                    if value not in pristine
                ]
            )
            if copies:
                device.submit(copies, (), ())

    def read(self, part: Part = everything) -> list[bytes]:
        """The contents of each tensor, or of a part of it, in the order of the program."""
        self.check_open()
        contents = []
        for tensor in self.tensors:
            spans = self._parts(tensor, part)
            buffer = self.buffers[tensor.id]
            contents.append(read_parts(self.executor.device, buffer, spans, bytes) if spans else b"")
        return contents

    def sizes(self, part: Part = everything) -> list[int]:
        """How many bytes `read` gives, and `write` takes, for each tensor."""
        return [sum(size for _, size in part(tensor)) for tensor in self.tensors]

    def write(self, contents: Sequence[bytes | memoryview], part: Part = everything) -> None:
        """Write what `read` gave for the same part. Nothing changes if a size is wrong."""
        if [len(data) for data in contents] != self.sizes(part):
            raise InputError("the contents do not have the sizes of this state's tensors")
        device = self.executor.device
        with device.lock:
            self.check_open()
            for tensor, data in zip(self.tensors, contents, strict=True):
                place = 0
                for offset, size in self._parts(tensor, part):
                    device.write(self.buffers[tensor.id], offset, data[place : place + size])
                    place += size

    def copy_from(self, other: State, part: Part = everything) -> None:
        """Copy the contents of another state of the same method, on the GPU."""
        if other.executor is not self.executor:
            raise InputError("the other state belongs to another method or device")
        device = self.executor.device
        with device.lock:
            self.check_open()
            other.check_open()
            copies = self._copies_from(other, part)
            if copies:
                device.submit(copies, (), ())

    def _copies_from(self, other: State, part: Part) -> list[Copy]:
        return [
            (other.buffers[tensor.id], offset, self.buffers[tensor.id], offset, size)
            for tensor in self.tensors
            for offset, size in part(tensor)
        ]

    def __reduce__(self) -> Any:
        raise TypeError("a state belongs to one GPU and cannot be pickled: make a new one where it is needed")

    def check_open(self) -> None:
        if self.closed:
            raise PteronError("the state is closed: make another with method.new_state()")

    def close(self) -> None:
        """Free its memory. A second close does nothing."""
        with self.executor.device.lock:
            self.closed = True
            self.commands = (-1, [])
            self.ahead.forget()
            self.groups.clear()
            self.buffers.clear()
            self._owned.free()
