"""How long a dispatch takes on a GPU: the largest of several simple limits.

With n waves on each SIMD (waves of all workgroups, spread evenly):

- arithmetic: n × the cycles that a wave occupies the vector unit
- scalar: n × the cycles that it occupies the scalar unit
- workgroup memory, L0 cache: the waves of a CU × the cycles that a wave occupies these units of the CU
- latency: n / (waves that fit at the same time) rounds. A round takes as long as a wave that runs alone,
  and the last one as long as the longest wave
- L2: what workgroups read for the first time, and write, over the bandwidth of the L2 cache
- memory: the bytes that the operator must move, each once, over the bandwidth of memory

Waves do not hinder each other below these limits, and there is no cache larger than the L2: the Infinity
Cache of RDNA would make repeated reads of weights faster than "memory" says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.gpu_model.gpus import Gpu


@dataclass(frozen=True)
class Waves:
    """The waves of a dispatch: how many there are and fit, what an average one does, and its cycles."""

    groups: int
    per_group: int
    occupancy: int
    counts: Mapping[str, float]
    cycles: float
    longest: float

    @property
    def number(self) -> int:
        return self.groups * self.per_group


@dataclass(frozen=True)
class Prediction:
    seconds: float  # without the launch
    bound: str


def predict(gpu: Gpu, waves: Waves, nbytes: int) -> Prediction:
    """nbytes: what the operator must move."""
    counts = waves.counts
    n = -(-waves.number // gpu.simds)
    # With fewer waves than SIMDs, some CUs have only one.
    on_unit = -(-waves.number // gpu.units) if waves.number < gpu.simds else n * gpu.simds_per_unit
    cycles = {
        "arithmetic": n * max(counts.get("valu_cycles", 0), counts.get("complex_cycles", 0)),
        "scalar": n * counts.get("salu_cycles", 0),
        "workgroup memory": on_unit * counts.get("lds_cycles", 0),
        "L0 cache": on_unit * counts.get("memory_cycles", 0),
        "latency": waves.longest + (-(-n // max(waves.occupancy, 1)) - 1) * waves.cycles,
    }
    limits = {name: number / gpu.clock for name, number in cycles.items()}
    lines = counts.get("new_lines", 0) + counts.get("store_lines", 0)
    moved = waves.number * lines * gpu.architecture.line
    limits["L2 cache"] = moved / (gpu.l2_bytes_per_cycle * gpu.clock)
    limits["memory"] = nbytes / gpu.bandwidth
    bound = max(limits, key=lambda name: limits[name])
    return Prediction(limits[bound], bound)


def roofline(gpu: Gpu, nbytes: int, flops: int) -> float:
    """The seconds that an operator needs at least: its bytes over the bandwidth, or its FLOPs over the
    peak.
    """
    return max(nbytes / gpu.bandwidth, flops / gpu.flops)
