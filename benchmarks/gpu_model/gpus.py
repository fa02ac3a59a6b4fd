"""Published GPUs, and how their arithmetic works."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Architecture:
    """A generation of AMD's GPUs."""

    name: str
    generation: int  # 10 or 11
    line: int = 128  # bytes of a cache line
    banks: int = 32  # of workgroup memory


RDNA2 = Architecture("RDNA 2", 10)
RDNA3 = Architecture("RDNA 3", 11)


@dataclass(frozen=True)
class Latencies:
    """From a load to its data: in the scalar cache, workgroup memory, and the vector caches."""

    scalar: float
    local: float
    l0: float
    l2: float
    memory: float

    def times(self, factor: float) -> Latencies:
        return Latencies(
            *(factor * value for value in (self.scalar, self.local, self.l0, self.l2, self.memory))
        )


@dataclass(frozen=True)
class Gpu:
    """A GPU of AMD.

    Attributes:
        family: The name that Mesa's driver has for it.
        units: The number of CUs.
        clock: Hz. The published boost clock.
        bandwidth: Bytes per second of the memory.
        l2_bytes_per_cycle: What the L2 cache gives to all CUs. Assumed; nothing here is limited by it.
        flops_per_cycle: float32 operations of a CU. A multiply-add is two.
        nanoseconds: Assumed latencies.
        launch: Assumed seconds that a dispatch costs beside its kernel: a barrier, the end of the
            last waves and the start of the first.
    """

    name: str
    family: str
    architecture: Architecture
    units: int
    clock: float
    bandwidth: float
    l2_bytes_per_cycle: float
    flops_per_cycle: int
    nanoseconds: Latencies = Latencies(16, 14, 35, 80, 200)
    launch: float = 3e-6
    simds_per_unit: int = 2

    @property
    def simds(self) -> int:
        return self.units * self.simds_per_unit

    @property
    def flops(self) -> float:
        return self.units * self.flops_per_cycle * self.clock

    @property
    def latencies(self) -> Latencies:
        """In cycles."""
        return self.nanoseconds.times(1e-9 * self.clock)


GPUS = {
    gpu.family: gpu
    for gpu in (
        Gpu("Radeon RX 7900 XTX", "navi31", RDNA3, 96, 2.5e9, 960e9, 3072, 256),
        Gpu("Radeon RX 6800 XT", "navi21", RDNA2, 72, 2.25e9, 512e9, 2048, 128),
    )
}


@dataclass(frozen=True)
class IntelGpu:
    """A GPU of Intel, of which only the compiler's statistics are known here."""

    name: str
    pci_id: str
    topology: str  # slices, subslices per slice, EUs per subslice


INTEL = {
    "skl": IntelGpu("HD Graphics 530", "1912", "1 3 8"),
    "tgl": IntelGpu("Iris Xe", "9a49", "1 6 16"),
    "dg2": IntelGpu("Arc A770", "56a0", "8 4 16"),
    "mtl": IntelGpu("Arc of Meteor Lake", "7d55", "2 4 16"),
}


@dataclass(frozen=True)
class NvidiaGpu:
    """A GPU of NVIDIA, of which only the compiler's statistics are known here, and the limits of an SM."""

    name: str
    warps: int
    groups: int
    shared: int  # bytes of workgroup memory

    def occupancy(self, registers: int, shared: int, lanes: int) -> int:
        """The warps of whole workgroups of this many lanes that fit an SM, in sixteenths of the most.

        An SM has 65536 registers. They are given out in steps of 8 per lane and of 4 warps.
        """
        per_group = -(-lanes // 32)
        by_registers = 2048 // (-(-max(registers, 1) // 8) * 8) // 4 * 4
        limits = [self.warps // per_group, by_registers // per_group, self.groups]
        if shared:
            limits.append(self.shared // (-(-shared // 256) * 256))
        return 16 * min(limits) * per_group // self.warps


# One of each generation of the compiler's code.
NVIDIA = {
    "tu102": NvidiaGpu("RTX 2080 Ti", 32, 16, 64 << 10),
    "ga102": NvidiaGpu("RTX 3090", 48, 16, 100 << 10),
    "gb202": NvidiaGpu("RTX 5090", 48, 24, 100 << 10),
}


def name_of(family: str) -> str:
    """The product's name. `navi31@32` is navi31 with waves of 32 lanes, where the driver takes 64."""
    base, _, lanes = family.partition("@")
    known = INTEL.get(base) or GPUS.get(base) or NVIDIA.get(base)
    name = known.name if known else base
    return f"{name}, waves of {lanes} lanes" if lanes else name
