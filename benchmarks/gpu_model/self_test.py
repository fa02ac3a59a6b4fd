"""Is the emulator right? Runs kernels on a software adapter and in the emulator, and compares their results.

The emulator has waves of 64 lanes (`navi31`) and of 32 (`navi31@32`), which no software adapter offers. So
this also tests kernels that use subgroups.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.gpu_model.compiler import Compiled, compile_texts
from benchmarks.gpu_model.emulator import machine
from benchmarks.gpu_model.emulator.text import Unsupported
from benchmarks.gpu_model.gpus import GPUS
from benchmarks.gpu_model.measure import prepared, some_groups, zeros
from benchmarks.gpu_model.recorded import Dispatch, Recorded, Text
from benchmarks.gpu_model.tree import Tree

TOLERANCE = 1e-3  # of the largest value: sums may have another order
MOST_BYTES = 1 << 26  # of a buffer
# Bindings with these names are indices. Other contents are numbers.
INDICES = ("ids", "indices", "tokens", "slots", "positions")


@dataclass(frozen=True)
class Comparison:
    kernel: str
    route: str
    difference: float  # the largest, as a share of the largest value
    words: int  # that were compared
    error: str = ""  # an instruction that the emulator does not know

    @property
    def is_right(self) -> bool:
        return not self.error and self.words > 0 and self.difference < TOLERANCE


def run(recorded: Recorded, tree: Tree, families: Sequence[str], only: str, groups: int) -> int:
    """Print the comparisons. Returns how many are wrong."""
    wrong = 0
    for family in families:
        for found in comparisons(recorded, tree, family, only, groups):
            state = "skip " if found.error else "ok   " if found.is_right else "WRONG"
            detail = found.error or f"{found.words} words, largest difference {found.difference:.1e}"
            print(f"{state} {family} {found.kernel} ({found.route}): {detail}", flush=True)
            wrong += state == "WRONG"
    return wrong


def comparisons(
    recorded: Recorded, tree: Tree, family: str, only: str = "", groups: int = 4
) -> Iterator[Comparison]:
    """Every different dispatch of a program, with some of its workgroups."""
    generation = GPUS[family.partition("@")[0]].architecture.generation
    compiled = compile_texts(tree, recorded.texts.values(), family, "project")
    adapter, seen = _SoftwareAdapter(), set()
    for d in (d for dispatches in recorded.points.values() for d in dispatches):
        key = json.dumps([d.key, d.grid, d.uniforms], sort_keys=True)
        made = compiled[d.key]
        is_large = max(d.sizes.values(), default=0) > MOST_BYTES
        if key in seen or is_large or only not in f"{d.kernel} {d.route} {d.op}" or isinstance(made, str):
            continue
        seen.add(key)
        yield _compare(adapter, made, d, recorded.texts[d.key], generation, groups)


def _compare(
    adapter: _SoftwareAdapter, made: Compiled, d: Dispatch, text: Text, generation: int, groups: int
) -> Comparison:
    given = _contents(d, text)
    expected = adapter.run(d, text, given)
    emulated = {number: buffer.copy() for number, buffer in given.items()}
    code = machine.Dispatch(prepared(made, generation), d.grid, emulated)
    try:
        for group in some_groups(d, groups):
            machine.run_workgroup(code, group)
    except Unsupported as error:
        return Comparison(d.kernel, d.route, 0.0, 0, str(error))
    worst, words = 0.0, 0
    for number, right in expected.items():
        ours, before = emulated[number].view(np.uint32), given[number].view(np.uint32)
        # Where all workgroups ran, nothing may be missing. Else compare what these have written.
        written = (
            (ours != before) | (right.view(np.uint32) != before) if d.groups <= groups else ours != before
        )
        words += int(written.sum())
        worst = max(worst, _difference(right.view(np.float32)[written], ours.view(np.float32)[written]))
    return Comparison(d.kernel, d.route, worst, words)


def _difference(right: Any, ours: Any) -> float:
    """Words are compared as float32. Words that are equal, or that are no float32 numbers, need no
    tolerance.
    """
    differ = right.view(np.uint32) != ours.view(np.uint32)
    if not differ.any():
        return 0.0
    if (np.isfinite(right) != np.isfinite(ours))[differ].any():
        return float("inf")
    largest = float(np.abs(right[np.isfinite(right)]).max(initial=1e-20))
    return (
        float(np.abs(ours.astype(np.float64) - right)[differ & np.isfinite(right)].max(initial=0.0)) / largest
    )


def _contents(d: Dispatch, text: Text) -> dict[int, np.ndarray[Any, Any]]:
    """float16 numbers from 0.5 to 2, which as float32 are from 3e-5 to 2. Integers below 16 for indices."""
    rng, found = np.random.default_rng(1), zeros(d, text)
    for number, kind in enumerate(text["kinds"]):
        if kind == "uniform":
            continue
        nbytes = len(found[number])
        if any(f"@binding({number}) var<storage, read> {name}:" in text["text"] for name in INDICES):
            found[number] = rng.integers(0, 16, nbytes // 4, np.uint32).view(np.uint8)
        else:
            found[number] = rng.integers(0x3800, 0x3FFF, nbytes // 2, np.uint16).view(np.uint8)
    return found


class _SoftwareAdapter:
    def __init__(self) -> None:
        from pteron.engine.devices.wgpu.wgpu_device import WgpuDevice

        self.device = WgpuDevice("llvmpipe")

    def run(self, d: Dispatch, text: Text, given: dict[int, np.ndarray[Any, Any]]) -> dict[int, Any]:
        """The results, by the numbers of their bindings."""
        from pteron.engine.staging import read_back

        device, buffers = self.device, []
        for number, kind in enumerate(text["kinds"]):
            make = device.uniform if kind == "uniform" else device.storage
            buffers.append(make(max(len(given[number]), 16), "self test"))
            device.write(buffers[-1], 0, given[number].tobytes())
        pipeline = device.pipeline(text["text"], text["kernel"], text["kinds"])
        group = device.bind_group(pipeline, [(b, 0, b.size) for b in buffers], "self test")
        device.submit((), [device.command(pipeline, group, d.grid)], ())
        results = {
            number: np.frombuffer(read_back(device, buffers[number], len(given[number]), bytes), np.uint8)
            for number, kind in enumerate(text["kinds"])
            if kind == "read_write"
        }
        for buffer in buffers:
            device.free(buffer)
        return results
