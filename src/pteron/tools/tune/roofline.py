"""What a device can do at most, measured by two small kernels: bytes per second, and operations per second.

The first kernel reads memory. The second multiplies and adds float32 numbers in registers.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from pteron.api.profiling.kernel_timer import KernelTimer
from pteron.compiler.ir.work import Cost
from pteron.engine.devices.device import Command, Device

WORKGROUP_LANES = 64
READ_NBYTES = 64 << 20  # larger than the caches of most GPUs
QUADS_PER_LANE = 64
ARITHMETIC_GROUPS = 1024
CHAINS = 8  # independent sums per lane, which hide the latency of an addition
FLOPS_PER_STEP = CHAINS * 4 * 2
SECONDS = 0.2  # of reading: the shortest of many runs is the least disturbed
LONG_ENOUGH = 2e-3  # seconds: the start of a kernel is then a small part of its time
FEWEST_STEPS, MOST_STEPS = 16, 1 << 16

# Every lane stores one sum, so that a compiler cannot remove the reads.
_READ = f"""//#trusted
@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> y: array<vec4<f32>>;
@compute @workgroup_size({WORKGROUP_LANES})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {{
    let first = group.x * {WORKGROUP_LANES * QUADS_PER_LANE}u + lane;
    var sum = vec4<f32>(0.0);
    for (var i = 0u; i < {QUADS_PER_LANE}u; i++) {{ sum += x[first + i * {WORKGROUP_LANES}u]; }}
    y[group.x * {WORKGROUP_LANES}u + lane] = sum;
}}
"""

# The factor and the summand are read from memory, so that a compiler cannot compute the result.
_ARITHMETIC = f"""//#trusted
struct Given {{ factor: vec4<f32>, summand: vec4<f32>, steps: vec4<u32> }}
@group(0) @binding(0) var<storage, read> given: Given;
@group(0) @binding(1) var<storage, read_write> y: array<vec4<f32>>;
@compute @workgroup_size({WORKGROUP_LANES})
fn main(@builtin(global_invocation_id) id: vec3<u32>) {{
    let m = given.factor;
    let a = given.summand;
    {" ".join(f"var s{i} = vec4<f32>(f32(id.x + {i}u));" for i in range(CHAINS))}
    for (var step = 0u; step < given.steps.x; step++) {{
        {" ".join(f"s{i} = s{i} * m + a;" for i in range(CHAINS))}
    }}
    y[id.x] = {" + ".join(f"s{i}" for i in range(CHAINS))};
}}
"""


@dataclass(frozen=True, slots=True)
class Ceilings:
    """The limits of a device.

    Attributes:
        bytes_per_second: Reads of memory that is in no cache.
        flops_per_second: A multiplication and an addition are two.
        dispatch_seconds: The time of a kernel that does almost nothing.
    """

    bytes_per_second: float
    flops_per_second: float
    dispatch_seconds: float

    def seconds(self, cost: Cost) -> float:
        """The time that this work needs at least."""
        return max(cost.nbytes / self.bytes_per_second, (cost.flops or 0) / self.flops_per_second)

    def bound(self, cost: Cost) -> str:
        by_flops = (cost.flops or 0) / self.flops_per_second
        return "arithmetic" if by_flops > cost.nbytes / self.bytes_per_second else "memory"


def measure_ceilings(device: Device, timer: KernelTimer) -> Ceilings:
    bandwidth, dispatch = _reading(device, timer)
    return Ceilings(bandwidth, _arithmetic(device, timer), dispatch)


def _reading(device: Device, timer: KernelTimer) -> tuple[float, float]:
    """Bytes per second of a long read, and the seconds of the shortest one."""
    per_group = 16 * QUADS_PER_LANE * WORKGROUP_LANES
    limit = min(READ_NBYTES, device.largest_binding)
    groups = min(limit // per_group, device.limits["max-compute-workgroups-per-dimension"])
    read, written = groups * per_group, groups * per_group // QUADS_PER_LANE
    with _SmallKernel(device, _READ, read, written) as kernel:
        long, short = (timer.time([kernel.command(count)], SECONDS).shortest for count in (groups, 1))
    return (read + written) / long, short


def _arithmetic(device: Device, timer: KernelTimer) -> float:
    lanes = ARITHMETIC_GROUPS * WORKGROUP_LANES
    with _SmallKernel(device, _ARITHMETIC, 48, 16 * lanes) as kernel:
        command, given = kernel.command(ARITHMETIC_GROUPS), kernel.buffers[0]
        device.write(given, 0, struct.pack("<8f", *[0.999] * 4, *[0.001] * 4))
        steps = FEWEST_STEPS
        while True:
            device.write(given, 32, struct.pack("<I", steps))
            seconds = timer.time([command]).shortest
            if seconds >= LONG_ENOUGH or steps >= MOST_STEPS:
                return FLOPS_PER_STEP * steps * lanes / seconds
            steps *= 4


class _SmallKernel:
    """A kernel that reads one buffer and writes another."""

    def __init__(self, device: Device, source: str, read_nbytes: int, written_nbytes: int) -> None:
        self._device = device
        self._pipeline = device.pipeline(source, "ceiling", ["read", "read_write"])
        self.buffers = [device.storage(nbytes, "ceiling") for nbytes in (read_nbytes, written_nbytes)]
        bound = [(buffer, 0, buffer.size) for buffer in self.buffers]
        self._group = device.bind_group(self._pipeline, bound, "ceiling")

    def command(self, groups: int) -> Command:
        return self._device.command(self._pipeline, self._group, (groups, 1, 1))

    def __enter__(self) -> _SmallKernel:
        return self

    def __exit__(self, *_: object) -> None:
        for buffer in self.buffers:
            self._device.free(buffer)
