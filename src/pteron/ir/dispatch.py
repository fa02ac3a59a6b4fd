"""What an operator's rule returns: the kernels to run, with their parameters and grids.

A `Dispatch` is one kernel launch. What the shader text depends on (`defines`, `code`, and the
dtypes of what is bound) may not depend on the live shape; `params` and `grid` may. An op that has
several ways to do its work returns a list of `Route`s, best first: all that the device can run are
compiled at load, and each call takes the first that fits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil, isqrt
from typing import TYPE_CHECKING, TypeAlias

from pteron.ir.dtypes import DType
from pteron.ir.values import Shape

if TYPE_CHECKING:
    from pteron.ir.live import LiveInt, LiveTensor

Grid: TypeAlias = tuple[int, int, int]
Number: TypeAlias = "int | float | tuple[int, ...]"
Define: TypeAlias = "int | float | bool | str"

# The smallest limit any WebGPU device may have.
MAX_GROUPS_PER_DIMENSION = 65535
WORKGROUP = 64

# Features that routes may need: subgroups of eight lanes at least, and arithmetic in half precision.
SUBGROUP = "subgroup of 8"
HALF = "shader-f16"

# Kinds of device that routes may be written for. Where a GPU wants workgroup memory and many small
# invocations, a driver that runs shaders on the CPU wants registers, and no barriers.
GPU = "GPU"
SOFTWARE = "software adapter"


@dataclass(frozen=True, slots=True)
class Scratch:
    """Memory for one node alone, at its largest. Same name, same buffer."""

    name: str
    max_nbytes: int
    dtype: DType = DType.float32  # as which kernels see it that take any


Bound: TypeAlias = "LiveTensor | LiveInt | Scratch"


@dataclass(slots=True)
class Dispatch:
    kernel: str  # the stem of a file in ops/wgsl
    bindings: Mapping[str, Bound]  # by the names the WGSL uses
    params: Mapping[str, Number]
    grid: Grid
    defines: Mapping[str, int | float | bool | str] = field(default_factory=dict)
    code: str = ""  # WGSL that completes the kernel, such as an elementwise function
    packed: bytes | None = None  # the GPU layer's form of `params`


@dataclass(frozen=True, slots=True)
class Shared:
    """What the dispatches of several routes have in common."""

    bindings: Mapping[str, Bound]
    params: Mapping[str, Number]
    defines: Mapping[str, Define]

    def dispatch(self, kernel: str, grid: Grid, code: str = "", /, **defines: Define) -> Dispatch:
        return Dispatch(kernel, self.bindings, self.params, grid, {**self.defines, **defines}, code)


@dataclass(slots=True)
class Route:
    """A way to do a node's work. `when` says whether it fits the live shape; None: it fits every one."""

    name: str
    dispatches: list[Dispatch]
    when: bool | None = None
    needs: str | tuple[str, ...] | None = None  # features of the device
    home: str | None = None  # the kind of device it is written for: elsewhere it comes last


Planned: TypeAlias = "Dispatch | list[Dispatch] | list[Route] | None"


def fold(groups: int) -> Grid:
    """A one-dimensional grid, folded into two dimensions where it is too long for one."""
    if groups <= MAX_GROUPS_PER_DIMENSION:
        return (groups, 1, 1)
    x = isqrt(groups - 1) + 1
    return (x, ceil(groups / x), 1)


def threads(count: int, per_group: int = WORKGROUP) -> Grid:
    """A grid with at least `count` invocations."""
    return fold(-(-count // per_group))


def quads(count: int) -> int:
    """How many groups of four elements cover `count`."""
    return -(-count // 4)


def copy_dispatch(source: LiveTensor, target: LiveTensor) -> Dispatch:
    """Copy a tensor, four bytes at a time."""
    words = quads(source.nbytes)
    return Dispatch("copy", {"x": source, "y": target}, {"words": words}, threads(words))


def describe(shape: Shape) -> str:
    return "(" + ", ".join(map(str, shape)) + ")"
