"""The result of an operator's rule: the kernels to run, with their parameters and grids.

A `Dispatch` is one kernel launch. The shader text depends on `defines`, `code` and the dtypes of the
bindings. These must not depend on the live shape; `params` and `grid` may. An operator with several
implementations returns a list of `Route`s in order of preference. All routes that the device can run are
compiled at load, and each call uses the first that fits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil, isqrt
from typing import TYPE_CHECKING, TypeAlias

from pteron.compiler.ir.dtypes import DType
from pteron.compiler.ir.values import Shape

if TYPE_CHECKING:
    from pteron.compiler.ir.live import LiveInt, LiveTensor

Grid: TypeAlias = tuple[int, int, int]
Number: TypeAlias = "int | float | tuple[int, ...]"
Define: TypeAlias = "int | float | bool | str"

# Every WebGPU device supports at least this.
MAX_GROUPS_PER_DIMENSION = 65535
WORKGROUP = 64

# Features that a route may need: subgroups of at least eight lanes, and half-precision arithmetic.
SUBGROUP = "subgroup of 8"
HALF = "shader-f16"
# Every device can run routes that need this. Where a lane has few registers (Intel, phones), they are slow.
MANY_REGISTERS = "many registers"
# Not for routes: with 64-bit integers, kernels on a software adapter move 64 bits at a time.
WIDE = "shader-int64"

# What a user permits with `load(precision=)`: kernels that round operands to 16, or to 8 bits.
ROUNDS_TO_16 = "precision float16"
ROUNDS_TO_8 = "precision int8"
PRECISIONS: Mapping[str, tuple[str, ...]] = {
    "float32": (),
    "float16": (ROUNDS_TO_16,),
    "int8": (ROUNDS_TO_8,),
}

# Kinds of device that a route may be written for. A GPU is fast with workgroup memory and many small
# invocations. A driver that runs shaders on the CPU is fast with registers and without barriers.
GPU = "GPU"
SOFTWARE = "software adapter"


@dataclass(frozen=True, slots=True)
class Scratch:
    """Temporary memory of one node. It has a fixed size. Equal names are the same buffer."""

    name: str
    max_nbytes: int
    dtype: DType = DType.float32  # the element type, for kernels that accept any


Bound: TypeAlias = "LiveTensor | LiveInt | Scratch"


@dataclass(slots=True, eq=False, weakref_slot=True)
class Dispatch:
    kernel: str  # the stem of a file in a folder `wgsl`
    bindings: Mapping[str, Bound]  # by the names in the WGSL file
    params: Mapping[str, Number]
    grid: Grid
    defines: Mapping[str, int | float | bool | str] = field(default_factory=dict)
    code: str = ""  # WGSL that completes the kernel, such as an elementwise function


@dataclass(frozen=True, slots=True)
class Shared:
    """The common part of the dispatches of several routes."""

    bindings: Mapping[str, Bound]
    params: Mapping[str, Number]
    defines: Mapping[str, Define]

    def dispatch(self, kernel: str, grid: Grid, code: str = "", /, **defines: Define) -> Dispatch:
        return Dispatch(kernel, self.bindings, self.params, grid, {**self.defines, **defines}, code)


@dataclass(slots=True)
class Route:
    """One implementation of a node. `when` says whether it fits the live shape; None: it always fits."""

    name: str
    dispatches: list[Dispatch]
    when: bool | None = None
    needs: str | tuple[str, ...] | None = None  # required features of the device
    target: str | None = None  # the kind of device it is written for; on other devices it comes last

    @property
    def label(self) -> str:
        """The name and the kernels. Routes of different operators may have the same label."""
        return f"{self.name}: {' + '.join(dict.fromkeys(dispatch.kernel for dispatch in self.dispatches))}"


Planned: TypeAlias = "Dispatch | list[Dispatch] | list[Route] | None"


def fold(groups: int) -> Grid:
    """A one-dimensional grid, as two dimensions if it is too long for one."""
    if groups <= MAX_GROUPS_PER_DIMENSION:
        return (groups, 1, 1)
    x = isqrt(groups - 1) + 1
    return (x, ceil(groups / x), 1)


def threads(count: int, per_group: int = WORKGROUP) -> Grid:
    """A grid with at least `count` invocations."""
    return fold(-(-count // per_group))


def quads(count: int) -> int:
    """The number of groups of four elements that cover `count` elements."""
    return -(-count // 4)


def copy_dispatch(source: LiveTensor, target: LiveTensor) -> Dispatch:
    """Copy a tensor, four bytes at a time."""
    words = quads(source.nbytes)
    return Dispatch("copy", {"x": source, "y": target}, {"words": words}, threads(words))


def describe(shape: Shape) -> str:
    return "(" + ", ".join(map(str, shape)) + ")"
