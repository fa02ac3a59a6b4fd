"""What is known of a GPU before it is opened."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

AMD, NVIDIA = 0x1002, 0x10DE


@dataclass(frozen=True, slots=True)
class Adapter:
    """A GPU that can run programs.

    Attributes:
        index: Its number, which `--device` and `device=` take.
        name: The name that the driver gives.
        kind: `DiscreteGPU`, `IntegratedGPU`, `Unknown` or `CPU` (a software adapter).
        backend: `Vulkan`, `Metal` or `D3D12`.
        driver: The driver and its version.
        features: WebGPU features, such as `subgroup` or `shader-f16`.
        limits: WebGPU limits by name.
        vendor: The number of the maker, as for PCI devices.
    """

    index: int
    name: str
    kind: str
    backend: str
    driver: str
    features: frozenset[str] = field(repr=False)
    limits: dict[str, int] = field(repr=False)
    handle: Any = field(repr=False, compare=False)
    vendor: int = 0

    @property
    def is_software(self) -> bool:
        """Whether it runs on the CPU."""
        return self.kind == "CPU"

    @property
    def has_many_registers(self) -> bool:
        """Whether a lane can keep about 200 values in registers."""
        return self.vendor in (AMD, NVIDIA)

    def __str__(self) -> str:
        return f"{self.name} ({self.kind}, {self.backend}, {self.driver})"
