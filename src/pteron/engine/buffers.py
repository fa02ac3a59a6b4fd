"""Buffers with one owner, which are freed together."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any

from pteron.engine.devices.device import Buffer, Device


class Buffers(AbstractContextManager["Buffers"]):
    """Use it as a context manager while the owner is created: on failure, the buffers are freed."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self._made: list[Buffer] = []

    def storage(self, nbytes: int, label: str) -> Buffer:
        return self._keep(self.device.storage(nbytes, label))

    def constant(self, nbytes: int, label: str, parts: Iterable[tuple[int, Any]]) -> Buffer:
        return self._keep(self.device.constant(nbytes, label, parts))

    def uniform(self, nbytes: int, label: str) -> Buffer:
        return self._keep(self.device.uniform(nbytes, label))

    def staging(self, nbytes: int, label: str) -> Buffer:
        return self._keep(self.device.staging(nbytes, label))

    def _keep(self, buffer: Buffer) -> Buffer:
        self._made.append(buffer)
        return buffer

    @property
    def nbytes(self) -> int:
        return sum(buffer.size for buffer in self._made)

    def free_one(self, buffer: Buffer) -> None:
        self._made.remove(buffer)
        self.device.free(buffer)

    def free(self) -> None:
        while self._made:
            self.device.free(self._made.pop())

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            self.free()
