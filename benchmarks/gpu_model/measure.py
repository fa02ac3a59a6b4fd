"""What an average wave of a dispatch does, found by running some of its workgroups in the emulator."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpu_model import emulator, gpus, wave_cost
from benchmarks.gpu_model.compiler import Compiled
from benchmarks.gpu_model.emulator import machine
from benchmarks.gpu_model.emulator.text import Unsupported
from benchmarks.gpu_model.gpus import Gpu
from benchmarks.gpu_model.recorded import Dispatch, Text
from benchmarks.gpu_model.tree import cache_folder
from benchmarks.gpu_model.wave_cost import WaveCost

SAMPLES = 3  # workgroups of a dispatch


@dataclass(frozen=True)
class Measured:
    """An average wave: what it executes, why it waits, its cycles; and the cycles of the longest wave."""

    counts: dict[str, float] = field(default_factory=dict)
    stalls: dict[str, float] = field(default_factory=dict)
    cycles: float = 0.0
    longest: float = 0.0
    error: str = ""  # an instruction that the emulator does not know


def measure(gpu: Gpu, kernel: Compiled, dispatch: Dispatch, text: Text, samples: int = SAMPLES) -> Measured:
    """Emulate some workgroups. What was emulated before is read from the cache."""
    given = asdict(dispatch)
    decisive = [given[name] for name in ("grid", "uniforms", "sizes", "far")]
    inputs = json.dumps(
        [kernel.assembly, kernel.lanes, repr(gpu.latencies), samples, decisive], sort_keys=True
    )
    path = cache_folder() / "measured" / hashlib.sha256((_version() + inputs).encode()).hexdigest()[:24]
    if path.exists():
        return Measured(**json.loads(path.read_text("utf-8")))
    found = _emulate(gpu, kernel, dispatch, text, samples)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(asdict(found)), "utf-8")
    return found


@cache
def _version() -> str:
    """A hash of the code that decides the result."""
    digest = hashlib.sha256()
    files = (gpus.__file__, wave_cost.__file__, *sorted(Path(emulator.__path__[0]).glob("*.py")))
    for path in files:
        digest.update(Path(path).read_bytes())
    return digest.hexdigest()


@cache
def prepared(kernel: Compiled, generation: int) -> machine.Kernel:
    return machine.Kernel.read(
        kernel.assembly,
        kernel.text("ACO_IR"),
        kernel.nir,
        generation,
        lanes=kernel.lanes,
        workgroup=kernel.workgroup,
        local_nbytes=kernel.workgroup_memory,
    )


def zeros(dispatch: Dispatch, text: Text) -> dict[int, np.ndarray[Any, Any]]:
    """The buffers of a dispatch: parameters as they are, and zeros."""
    return {
        number: np.frombuffer(bytes.fromhex(dispatch.uniforms[str(number)]), np.uint8).copy()
        if kind == "uniform"
        else np.zeros(dispatch.sizes[str(number)], np.uint8)
        for number, kind in enumerate(text["kinds"])
    }


def some_groups(dispatch: Dispatch, count: int) -> list[tuple[int, int, int]]:
    """The first workgroup, the last, and some between. If it is only one: that in the middle."""
    x, y, _ = dispatch.grid
    last, count = dispatch.groups - 1, min(count, dispatch.groups)
    flat = {round(n * last / (count - 1)) for n in range(count)} if count > 1 else {last // 2}
    return [(f % x, f // x % y, f // (x * y)) for f in sorted(flat)]


def _emulate(gpu: Gpu, kernel: Compiled, dispatch: Dispatch, text: Text, samples: int) -> Measured:
    code = prepared(kernel, gpu.architecture.generation)
    run = machine.Dispatch(code, dispatch.grid, zeros(dispatch, text))
    waves: list[WaveCost] = []
    try:
        for group in some_groups(dispatch, samples):
            lines: set[tuple[int, int]] = set()
            far = set(dispatch.far)
            own = [
                WaveCost(gpu.architecture, gpu.latencies, far, lines) for _ in range(kernel.waves_per_group)
            ]
            machine.run_workgroup(run, group, own)
            waves += own
    except Unsupported as error:
        return Measured(error=str(error))
    return Measured(
        _mean([wave.counts for wave in waves]),
        _mean([wave.stalls for wave in waves]),
        sum(wave.cycle for wave in waves) / len(waves),
        max(wave.cycle for wave in waves),
    )


def _mean(numbers: list[dict[str, float]]) -> dict[str, float]:
    total: dict[str, float] = defaultdict(float)
    for each in numbers:
        for key, value in each.items():
            total[key] += value
    return {key: value / len(numbers) for key, value in sorted(total.items())}
