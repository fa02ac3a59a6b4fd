"""Three published GPUs, and how many invocations of a kernel each keeps at the same time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class GpuClass:
    name: str
    cores: int  # parts that run whole workgroups: subslices, cores or multiprocessors
    width: int  # invocations of a hardware thread: a workgroup gets whole threads
    most_lanes: int  # resident invocations per core
    lanes_for: Callable[[int], int]  # resident invocations per core, by registers; 0: they do not fit
    workgroup_nbytes: int  # workgroup memory per core
    granted: Callable[[int], int]  # the workgroup memory that a request takes
    most_groups: int  # resident workgroups per core
    flops_per_second: float  # float32; a multiply-add is two
    bytes_per_second: float
    sources: str

    def resident_groups(self, lanes: int, registers: int, workgroup_nbytes: int) -> int:
        """The number of workgroups that a core keeps at the same time. 0: registers must spill."""
        rounded = -(-lanes // self.width) * self.width
        limits = [self.most_groups, self.lanes_for(registers) // rounded]
        if workgroup_nbytes:
            limits.append(self.workgroup_nbytes // self.granted(workgroup_nbytes))
        return min(limits)

    def occupancy(self, lanes: int, registers: int, workgroup_nbytes: int) -> float:
        """The share of a core's invocations that do work. Lanes that only fill up a thread do none."""
        return self.resident_groups(lanes, registers, workgroup_nbytes) * lanes / self.most_lanes

    def least_seconds(self, flops: int, nbytes: int) -> tuple[float, str]:
        """The time at the ceiling, and which ceiling it is."""
        by_flops, by_bytes = flops / self.flops_per_second, nbytes / self.bytes_per_second
        return (by_flops, "arithmetic") if by_flops > by_bytes else (by_bytes, "memory")


def _steps(*table: tuple[int, int]) -> Callable[[int], int]:
    """A table of (registers up to here, resident invocations)."""
    return lambda registers: next((lanes for most, lanes in table if registers <= most), 0)


def _nvidia_lanes(registers: int) -> int:
    """65536 registers. A warp of 32 gets them in units of 256, at most 255 per invocation."""
    if registers > 255:
        return 0
    per_warp = -(-registers * 32 // 256) * 256
    return min(48, 65536 // per_warp) * 32


def _power_of_two(nbytes: int) -> int:
    return max(1024, 1 << (nbytes - 1).bit_length())


INTEL = GpuClass(
    "Intel Iris Xe (96 EU)",
    cores=6,
    width=8,
    most_lanes=16 * 7 * 16,
    # A thread has 128 registers of 32 bytes. Sixteen invocations share them, or eight if they need more.
    lanes_for=_steps((64, 16 * 7 * 16), (128, 16 * 7 * 8)),
    workgroup_nbytes=128 << 10,
    granted=_power_of_two,
    most_groups=32,
    flops_per_second=96 * 8 * 2 * 1.35e9,
    bytes_per_second=68.3e9,
    sources="oneAPI GPU Optimization Guide (Xe-LP: 16 EU per dual subslice, 7 threads per EU, 128 KiB of "
    "local memory); Intel GPU Occupancy Calculator (sizes of local memory, 32 barriers); LPDDR4x-4266 on 128 "
    "bits",
)

APPLE = GpuClass(
    "Apple M1 (8 cores)",
    cores=8,
    width=32,
    most_lanes=1024,
    # Half registers per invocation, in the steps that the Asahi driver of Mesa lists.
    lanes_for=_steps(
        *((half // 2, lanes) for half, lanes in (
            (104, 1024), (112, 896), (128, 832), (136, 768), (144, 704), (160, 640), (184, 576), (208, 512),
            (232, 448), (256, 384),
        ))
    ),
    workgroup_nbytes=60 << 10,
    granted=lambda nbytes: nbytes,
    most_groups=1024 // 32,
    flops_per_second=2.6e12,
    bytes_per_second=68.3e9,
    sources="Apple's M1 announcement (2.6 TFLOPS, 8 cores); Mesa's Asahi driver (registers and invocations); "
    "metal-benchmarks (60 KiB of threadgroup memory per core); LPDDR4X-4266 on 128 bits",
)  # fmt: skip

NVIDIA = GpuClass(
    "NVIDIA RTX 4070",
    cores=46,
    width=32,
    most_lanes=1536,
    lanes_for=_nvidia_lanes,
    workgroup_nbytes=100 << 10,
    granted=lambda nbytes: -(-nbytes // 128) * 128 + 1024,
    most_groups=24,
    flops_per_second=46 * 128 * 2 * 2.475e9,
    bytes_per_second=504e9,
    sources="Ada Tuning Guide and CUDA Programming Guide (compute capability 8.9: 48 warps, 24 blocks, 65536 "
    "registers and 100 KiB of shared memory per multiprocessor); GeForce RTX 4070 specifications",
)

CLASSES = (INTEL, APPLE, NVIDIA)
