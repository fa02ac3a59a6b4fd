"""What Pteron asks of a GPU: a dozen methods.

`gpu/wgpu` does it with wgpu-py. `gpu/recording` only notes what it is asked, and needs no GPU. Handles
(buffers, pipelines, bind groups, submissions) are made by the device and mean nothing to anybody else.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import Any, Protocol, TypeAlias

from pteron.ir.dispatch import Grid


class Buffer(Protocol):
    @property
    def size(self) -> int: ...


Pipeline: TypeAlias = Any
BindGroup: TypeAlias = Any
Command: TypeAlias = Any  # a dispatch, resolved once by `Device.command`
Submission: TypeAlias = Any  # what `Device.submit` returns, to wait for
Copy: TypeAlias = tuple[Buffer, int, Buffer, int, int]  # source, offset, target, offset, bytes


class Mapping(Protocol):
    """A staging buffer on its way to the host. `view` may be read between `wait` and `Device.unmap`."""

    def wait(self, timeout: float | None) -> None:
        """Block until the GPU has written the buffer. Raises `DeviceError` after `timeout` seconds."""

    @property
    def view(self) -> memoryview: ...


class Device(Protocol):
    """One GPU. Safe to share between threads: whoever changes what a method owns holds `lock`."""

    lock: threading.RLock
    allocations: int  # buffers made so far
    compilations: int  # pipelines made so far

    @property
    def allocated_nbytes(self) -> int:
        """Bytes of all buffers that somebody still holds."""

    @property
    def name(self) -> str: ...

    @property
    def is_software(self) -> bool: ...

    @property
    def uniform_alignment(self) -> int: ...

    @property
    def route_features(self) -> frozenset[str]:
        """The kind of device, and what kernels may use here beyond the portable floor."""

    def check_usable(self) -> None:
        """Raise `DeviceError` if the device is closed, lost, or belongs to the parent process."""

    def storage(self, nbytes: int, label: str) -> Buffer:
        """A buffer for tensors."""

    def uniform(self, nbytes: int, label: str) -> Buffer:
        """A buffer for parameters."""

    def staging(self, nbytes: int, label: str) -> Buffer:
        """A buffer that the host can map for reading."""

    def free(self, buffer: Buffer) -> None: ...

    def write(self, buffer: Buffer, offset: int, data: Any) -> None:
        """Copy host bytes into a buffer, before everything that is submitted later."""

    def clear(self, buffers: Iterable[Buffer]) -> None:
        """Fill buffers with zeros."""

    def pipeline(self, source: str, label: str, kinds: Sequence[str]) -> Pipeline:
        """The compute pipeline of a shader text, compiled once. `kinds` says how each binding is used."""

    def bind_group(
        self, pipeline: Pipeline, buffers: Iterable[tuple[Buffer, int, int]], label: str
    ) -> BindGroup:
        """Bind (buffer, offset, nbytes) in the order of the shader's bindings."""

    def command(self, pipeline: Pipeline, group: BindGroup, grid: Grid) -> Command:
        """One dispatch, for `submit`. The caller keeps the pipeline and the group alive."""

    def submit(
        self, before: Iterable[Copy], commands: Iterable[Command], after: Iterable[Copy]
    ) -> Submission:
        """Copies, then kernels in one pass, then copies: one encoder, one submit."""

    def map(self, staging: Buffer, nbytes: int, submission: Submission) -> Mapping:
        """Ask for the first bytes of a staging buffer, as a submission leaves them."""

    def unmap(self, staging: Buffer) -> None:
        """Give a staging buffer back to the GPU, whatever state an interrupted read left it in."""

    def wait(self) -> None:
        """Wait until everything submitted so far has been done."""

    def reopen(self) -> Device:
        """A new device on the same GPU, after this one was lost."""

    def close(self) -> None: ...
