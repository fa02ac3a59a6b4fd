"""The mutable tensors of a method (KV caches), with the bind groups that use them. One per conversation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pteron.errors import PteronError
from pteron.gpu.buffers import Buffers
from pteron.gpu.device import BindGroup, Buffer, Command, Copy
from pteron.ir.values import ValueId
from pteron.plan.memory import aligned

if TYPE_CHECKING:
    from pteron.gpu.executor import Executor, Site


class State:
    """It begins with the contents in the file, or with zeros."""

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        self.closed = False
        self.commands: tuple[int, list[Command]] = (-1, [])  # with the version of the plan they belong to
        with Buffers(executor.device) as owned:
            self.buffers: dict[ValueId, Buffer] = {
                tensor.id: owned.storage(aligned(tensor.max_nbytes), f"state {tensor.name}")
                for tensor in executor.graph.states
            }
            self.groups: dict[Site, BindGroup] = {
                site: executor.bind(site, self) for site in executor.sites if site.uses_state
            }
            self._owned = owned
            self.nbytes = owned.nbytes
            self.reset()

    def reset(self) -> None:
        """Reset to the contents in the file, or to zeros."""
        device = self.executor.device
        with device.lock:
            self.check_open()
            pristine = self.executor.pristine
            copies: list[Copy] = [
                (pristine[value], 0, buffer, 0, buffer.size)
                for value, buffer in self.buffers.items()
                if value in pristine
            ]
            device.clear(buffer for value, buffer in self.buffers.items() if value not in pristine)
            if copies:
                device.submit(copies, (), ())

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
            self.groups.clear()
            self.buffers.clear()
            self._owned.free()
