"""Buffers of outputs that stay on the GPU. When an output is gone, a later call uses its buffer again."""

from __future__ import annotations

from pteron.engine.devices.device import Buffer, Device

IDLE = 4  # buffers of one size that wait for a later call; more are freed


class KeptBuffers:
    """Sizes are powers of two, so outputs of similar sizes share buffers.

    The GPU works in order: what was submitted before still reads the old contents. An output may be dropped
    in any thread and at any line, so nothing here needs a lock.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._idle: dict[int, list[Buffer]] = {}
        self._closed = False

    def take(self, nbytes: int, most: int, label: str) -> Buffer:
        """A buffer of `nbytes` or more, but of at most `most`."""
        size = min(1 << (nbytes - 1).bit_length(), most)
        idle = self._idle.setdefault(size, [])
        try:
            return idle.pop()
        except IndexError:
            return self._device.storage(size, label)

    def give_back(self, buffer: Buffer) -> None:
        idle = self._idle.setdefault(buffer.size, [])
        if len(idle) < IDLE and not self._closed:
            idle.append(buffer)

    def close(self) -> None:
        """Free the buffers that wait. Outputs that still exist keep theirs."""
        self._closed = True
        self._idle.clear()
