"""The time of a few kernels, without uploads and read-backs: by the GPU's clock, or by the host's."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from pteron.engine.devices.device import Command, Device, Timer

GPU_CLOCK, HOST_CLOCK = "GPU timestamps", "wall time around many dispatches"
ENOUGH_SECONDS = 0.03  # a longer measurement is hardly more exact
MOST_RUNS = 256


@dataclass(frozen=True, slots=True)
class Timing:
    """The seconds of one run of the kernels: the median, and the shortest. The number of measured runs."""

    seconds: float
    shortest: float
    runs: int


class KernelTimer:
    """Times kernels on a device. No other code may use the device in this time."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._timer = device.timer

    @property
    def clock(self) -> str:
        return GPU_CLOCK if self._timer else HOST_CLOCK

    def time(self, commands: Sequence[Command], enough: float = ENOUGH_SECONDS) -> Timing:
        """Run the commands to warm up, and then for about `enough` seconds, at least once."""
        with self._device.lock:
            self._on_host(commands, 1)
            first = self._on_host(commands, 1)
            runs = max(1, min(MOST_RUNS, round(enough / max(first, 1e-6))))
            seconds = self._on_gpu(self._timer, commands, runs) if self._timer else []
            if not all(seconds) or not seconds:  # the GPU has no clock, or one that is too coarse
                seconds = [self._on_host(commands, runs) / runs]
            return Timing(median(seconds), min(seconds), runs)

    def _on_gpu(self, timer: Timer, commands: Sequence[Command], runs: int) -> list[float]:
        """The seconds of each run."""
        with timer() as watch:
            self._device.submit((), list(commands) * runs, ())
            spans = [(span.end - span.begin) / 1e9 for span in watch.read()]
        count = len(commands)
        return [sum(spans[start : start + count]) for start in range(0, len(spans), count)]

    def _on_host(self, commands: Sequence[Command], runs: int) -> float:
        begin = time.perf_counter()
        self._device.submit((), list(commands) * runs, ())
        self._device.wait()
        return time.perf_counter() - begin
