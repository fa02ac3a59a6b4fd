"""What a wave costs: an observer of the emulator that counts, and follows the wave through a simple pipeline.

The pipeline issues in order, one instruction per cycle. It waits for operands, for units that are busy, and
at `s_waitcnt`. Rates and latencies of instructions are those that Mesa's compiler assumes: a SIMD executes
a wave of 32 lanes in one cycle, one of 64 lanes in two. On GFX11, a wave of 64 lanes needs one cycle for
instructions that can be issued in pairs. Products of 32-bit integers have a quarter of the rate, and so do
reciprocals and the like.

The first load of a cache line by a workgroup comes from memory (weights and KV caches) or from the L2 cache
(activations), and later ones from the L0 cache.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.gpu_model.emulator.text import Instruction
from benchmarks.gpu_model.emulator.wave import Wave
from benchmarks.gpu_model.gpus import Architecture, Latencies

_TRANSCENDENTAL = re.compile(r"v_(rcp|rsq|sqrt|exp|log|sin|cos)_")
_QUARTER = re.compile(r"v_(mul_lo_u32|mul_hi_[iu]32|mad_u64_u32|mad_i64_i32)$")
_DOUBLE = re.compile(r"v_(lshlrev_b64|lshrrev_b64|ashrrev_i64)$")
_DUAL = re.compile(
    r"v_(fma_f32|fmac_f32|fmaak_f32|fmamk_f32|mul_f32|add_f32|sub_f32|subrev_f32|mul_legacy_f32|mov_b32|"
    r"cndmask_b32|max_f32|min_f32|fma_f16|fmac_f16|mul_f16|add_f16|sub_f16|max_f16|min_f16|dot2_f32_f16|"
    r"dot2c_f32_f16)$"
)
# What an instruction that only waits or gives hints begins with.
_IDLE = ("s_clause", "s_delay", "s_nop", "s_endpgm", "s_sendmsg", "s_set_inst", "s_code_end")


@dataclass(frozen=True)
class Kind:
    """What is known about an instruction before it runs."""

    unit: str  # valu, salu, smem, load, store, lds, branch, wait, barrier or idle
    cycles: int = 1  # that it occupies its unit
    latency: int = 0  # until its result can be used
    complex: int = 0  # cycles of the unit for transcendental functions
    waits: dict[str, int] = field(default_factory=dict)


def kind_of(i: Instruction, arch: Architecture, lanes: int) -> Kind:
    name = i.name
    if name.startswith(("s_waitcnt", "s_wait_")):
        return Kind("wait", waits=_waits(name, i.modifiers["text"]))
    if name == "s_barrier":
        return Kind("barrier")
    for unit, prefixes in {
        "branch": ("s_branch", "s_cbranch"),
        "idle": _IDLE,
        "smem": ("s_load", "s_buffer_load"),
        "load": ("buffer_load",),
        "store": ("buffer_",),
        "lds": ("ds_",),
    }.items():
        if name.startswith(prefixes):
            return Kind(unit)
    if name.startswith("s_"):
        return Kind("salu", latency=2)
    passes = 1 if lanes == 32 or (arch.generation >= 11 and _DUAL.match(name)) else 2
    if _TRANSCENDENTAL.match(name):
        return Kind("valu", passes, 10, complex=4 * passes)
    if _QUARTER.match(name):
        return Kind("valu", 4 * passes, 8, complex=4 * passes)
    if _DOUBLE.match(name):
        return Kind("valu", 2 * passes, 6, complex=2 * passes)
    return Kind("valu", passes, 5)


def _waits(name: str, text: str) -> dict[str, int]:
    """For each counter, how many operations may be left."""
    if name == "s_waitcnt_vscnt":
        return {"vscnt": int(text.split()[-1], 0)}
    if name == "s_waitcnt_depctr":
        return {}
    return {counter: int(left, 0) for counter, left in re.findall(r"(vmcnt|lgkmcnt|vscnt)\((\w+)\)", text)}


class WaveCost:
    """Counts the instructions of one wave, and its cycles."""

    def __init__(
        self, arch: Architecture, latencies: Latencies, far: set[int], lines: set[tuple[int, int]]
    ) -> None:
        """far: bindings that come from memory. lines: what the workgroup has read already."""
        self.arch, self.latencies, self.far, self.lines = arch, latencies, far, lines
        self.cycle = 0.0
        self.ready = [0.0] * 520  # by register: when its value can be used
        self.free: dict[str, float] = {}  # by unit: when it can begin the next instruction
        self.pending: dict[str, list[float]] = {"vmcnt": [], "lgkmcnt": [], "vscnt": []}
        self.counts: dict[str, float] = defaultdict(float)
        self.stalls: dict[str, float] = defaultdict(float)

    def meet(self, others: list[WaveCost]) -> None:
        """At a barrier, all waves wait for the last."""
        latest = max(other.cycle for other in others)
        self.stalls["barrier"] += latest - self.cycle
        self.cycle = latest

    def see(self, i: Instruction, w: Wave, taken: bool) -> None:
        if i.info is None or i.info[0] != (self.arch, w.lanes):
            i.info = ((self.arch, w.lanes), kind_of(i, self.arch, w.lanes))
        kind: Kind = i.info[1]
        unit = kind.unit
        self.counts["instructions"] += 1
        self.counts[unit] += 1
        if unit == "wait":
            for counter, left in kind.waits.items():
                self._wait(counter, left)
            self.cycle += 1
            return
        at = self._begin(i, kind)
        cycles, done = kind.cycles, at + kind.latency
        if unit == "valu":
            self.counts["valu_cycles"] += cycles
            self.counts["complex_cycles"] += kind.complex
            self.counts["lanes_active"] += bin(w.exec).count("1")
            self.counts["lanes"] += w.lanes
            if kind.complex:
                self.free["complex"] = at + kind.complex
        elif unit in ("salu", "smem"):
            self.counts["salu_cycles"] += cycles
            if unit == "smem":
                done = at + self.latencies.scalar
                self._push("lgkmcnt", done)
        elif unit in ("load", "store"):
            done = self._buffer(unit, w, at)
        elif unit == "lds":
            done = self._workgroup_memory(w, at)
        self.free[unit] = at + (cycles if unit in ("valu", "salu") else 1)
        # The next instruction follows in the next cycle, or after the second half of a wave of 64 lanes.
        self.cycle = at + (cycles if unit in ("valu", "salu") and cycles <= 2 else 1)
        for register in i.writes:
            self.ready[register] = max(self.ready[register], done)

    def _begin(self, i: Instruction, kind: Kind) -> float:
        """When the operands and the unit are ready."""
        at = max([self.cycle, *(self.ready[register] for register in i.reads)])
        self.stalls["operands"] += at - self.cycle
        free = self.free.get(kind.unit, 0.0)
        if kind.complex:
            free = max(free, self.free.get("complex", 0.0))
        return max(at, free)

    def _push(self, counter: str, done: float) -> None:
        queue = self.pending[counter]
        queue.append(max(done, queue[-1]) if queue else done)  # results arrive in order
        del queue[:-63]

    def _wait(self, counter: str, left: int) -> None:
        queue = self.pending[counter]
        if len(queue) > left:
            latest = queue[len(queue) - left - 1]
            self.stalls[counter] += max(latest - self.cycle, 0)
            self.cycle = max(latest, self.cycle)
            del queue[: len(queue) - left]

    def _buffer(self, unit: str, w: Wave, at: float) -> float:
        """A load or store of a cache line per cycle, or of as many bytes. Returns when it is done."""
        binding, places, size = w.touched
        if not len(places):
            return at + 1
        line = self.arch.line
        numbers = np.unique(np.concatenate([places // line, (places + size - 1) // line]))
        keys = {(binding, int(number)) for number in numbers}
        busy = max(len(keys), -(-len(np.unique(places)) * size // line))
        self.counts["memory_cycles"] += busy
        if unit == "store":
            self.counts["store_lines"] += len(keys)
            self._push("vscnt", at + busy + self.latencies.l2)
            return at
        latency = self.latencies.l0
        if new := keys - self.lines:
            self.counts["new_lines"] += len(new)
            self.lines |= new
            latency = self.latencies.memory if binding in self.far else self.latencies.l2
        self._push("vmcnt", at + busy + latency)
        return at + busy + latency

    def _workgroup_memory(self, w: Wave, at: float) -> float:
        busy = max(sum(bank_cycles(places, size, self.arch.banks) for places, size in w.touched), 1)
        self.counts["lds_cycles"] += busy
        done = at + busy + self.latencies.local
        self._push("lgkmcnt", done)
        return done


def bank_cycles(places: np.ndarray[Any, Any], size: int, banks: int) -> int:
    """Cycles of an access to workgroup memory: lanes whose words are in the same bank wait for each other.

    As many lanes as fill all banks go together: 32 with 4 bytes, 16 with 8, 8 with 16. Equal addresses
    are one.
    """
    together = max(1, 4 * banks // max(size, 4))
    total = 0
    for start in range(0, len(places), together):
        offsets = np.arange(0, max(size, 4), 4)
        words = np.unique((places[start : start + together, None] + offsets[None, :]) >> 2)
        total += int(np.bincount(words % banks).max())
    return total
