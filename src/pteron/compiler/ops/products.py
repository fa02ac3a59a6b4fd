"""One table for all matrix products: which kind of kernel runs, for which sizes and on which devices.

A family of products (floats, 4-bit weights, a convolution, ...) has its kernels, each as one of the kinds
below. The table has the thresholds. So all families change from one kind to another at the same sizes:

    gemm = GemmShape(rows, columns)
    return product_routes(gemm, [
        Candidate(TEAM_GEMV, Dispatch("mine_teams", bindings, params, gemm.workgroups(1, 8))),
        Candidate(GEMM, Dispatch("mine", bindings, params, gemm.invocations(4, 4))),
    ])

A convolution is a product too. Its rows are the output channels of a group, and its columns the positions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from pteron.compiler.ir.rule import (
    GPU,
    HALF,
    MANY_REGISTERS,
    ROUNDS_TO_8,
    ROUNDS_TO_16,
    WORKGROUP,
    Dispatch,
    Grid,
    Route,
    fold,
    quads,
    threads,
)

FEW_ROWS = 16  # up to this many rows, teams are faster than tiles, because most rows of a tile would be empty
FEW_PACKED_ROWS = 8  # the same for packed weights, which a team unpacks again for every four rows
MIN_TILE_ROWS = 16  # a convolution with fewer rows (channels of a group) would leave most of a tile empty
MANY_ELEMENTS = 128 * 64 * 64  # an output with this many elements has enough large tiles to keep a GPU busy
ENOUGH_ELEMENTS = 128 * 64 * 32  # the same for tall tiles, whose workgroups divide the depth, too


@dataclass(frozen=True, slots=True)
class GemmShape:
    """The size of the output of a product: the number of matrices, and their rows and columns."""

    rows: int
    columns: int
    matrices: int = 1

    @property
    def elements(self) -> int:
        return self.matrices * self.rows * self.columns

    def workgroups(self, height: int, width: int) -> Grid:
        """One workgroup for each block of `height` rows and `width` columns."""
        return fold(self.blocks(height, width))

    def invocations(self, height: int, width: int) -> Grid:
        """One invocation for each block."""
        return fold(-(-self.blocks(height, width) // WORKGROUP))

    def element_quads(self) -> Grid:
        """One invocation for every four consecutive elements."""
        return threads(quads(self.elements))

    def blocks(self, height: int, width: int) -> int:
        """The number of blocks of `height` rows and `width` columns."""
        return self.matrices * -(-self.rows // height) * -(-self.columns // width)


@dataclass(frozen=True, slots=True, eq=False)
class KernelKind:
    """How a kernel divides its work. This decides the devices and sizes that it is used for."""

    name: str
    target: str | None = None  # the kind of device that it is written for; None: every kind
    needs: tuple[str, ...] = ()
    fits: Callable[[GemmShape], bool] | None = None  # None: every size


def up_to(rows: int) -> Callable[[GemmShape], bool]:
    return lambda gemm: gemm.rows <= rows


def is_one_row(gemm: GemmShape) -> bool:
    return gemm.rows == 1


# Teams: the lanes divide the depth of a few columns.
TEAM_GEMV = KernelKind("team gemv", GPU, (), is_one_row)
TEAM_FEW_ROWS = KernelKind("team few rows", GPU, (), up_to(FEW_ROWS))
TEAM_FEW_PACKED_ROWS = KernelKind("team few rows", GPU, (), up_to(FEW_PACKED_ROWS))
# Tiles: a workgroup keeps a part of both operands in its memory.
SPLIT_TILE = KernelKind("split tile gemm", GPU)  # several workgroups divide the depth
BROAD_TILE = KernelKind(
    "broad tile gemm", GPU, (MANY_REGISTERS,), lambda gemm: gemm.elements >= MANY_ELEMENTS
)
LARGE_TILE = KernelKind("large tile gemm", GPU, (), lambda gemm: gemm.elements >= MANY_ELEMENTS)
TALL_TILE = KernelKind(
    "tall tile gemm", GPU, (), lambda gemm: gemm.rows > 32 and gemm.elements >= ENOUGH_ELEMENTS
)
SMALL_TILE = KernelKind("small tile gemm", GPU)
# Tiles of operands that are rounded to 8 bits.
PACKED_BROAD_TILE = replace(BROAD_TILE, name="int8 broad tile gemm", needs=(MANY_REGISTERS, ROUNDS_TO_8))
PACKED_TALL_TILE = replace(TALL_TILE, name="int8 tall tile gemm", needs=(MANY_REGISTERS, ROUNDS_TO_8))
PACKED_TILE = KernelKind("int8 tile gemm", GPU, (ROUNDS_TO_8,), lambda gemm: gemm.rows > FEW_PACKED_ROWS)
# Tiles of operands that are rounded to float16.
HALVED_TILES = {
    kind: replace(kind, name=f"float16 {kind.name}", needs=(*needs, HALF, ROUNDS_TO_16))
    for kind, needs in (
        (BROAD_TILE, (MANY_REGISTERS,)),
        (TALL_TILE, (MANY_REGISTERS,)),
        (SMALL_TILE, ()),
    )
}
# Independent invocations: for every device.
GEMV = KernelKind("gemv", fits=is_one_row)
GEMM = KernelKind("gemm")
# One filter per channel: a convolution that is no product of matrices.
GPU_DEPTHWISE = KernelKind("depthwise in narrow bands", GPU)
DEPTHWISE = KernelKind("depthwise")
# For every device, element type and shape.
ANY = KernelKind("any")

# The fastest kind first: a call uses the first kind that fits its size and that the device can run.
ORDER = (
    TEAM_GEMV,
    TEAM_FEW_ROWS,
    TEAM_FEW_PACKED_ROWS,
    GEMV,
    PACKED_BROAD_TILE,
    PACKED_TALL_TILE,
    PACKED_TILE,
    *HALVED_TILES.values(),
    SPLIT_TILE,
    BROAD_TILE,
    LARGE_TILE,
    TALL_TILE,
    SMALL_TILE,
    GPU_DEPTHWISE,
    DEPTHWISE,
    GEMM,
    ANY,
)
_RANKS = {kind: rank for rank, kind in enumerate(ORDER)}


@dataclass(frozen=True, slots=True)
class Candidate:
    """A kernel of one kind, and its requirements beyond those of the kind."""

    kind: KernelKind
    dispatch: Dispatch
    when: bool | None = None  # whether it can compute the live shape; None: it can compute every one
    needs: tuple[str, ...] = ()
    before: Dispatch | None = None  # prepares an operand
    after: Dispatch | None = None  # finishes the result
    variant: str = ""  # distinguishes two candidates of one kind: routes of a node have different names

    def route(self, gemm: GemmShape) -> Route:
        kind, when = self.kind, self.when
        if kind.fits is not None:
            when = when is not False and kind.fits(gemm)
        dispatches = [each for each in (self.before, self.dispatch, self.after) if each is not None]
        name = f"{self.variant} {kind.name}".lstrip()
        return Route(name, dispatches, when, (*kind.needs, *self.needs), kind.target)


def product_routes(
    gemm: GemmShape, candidates: Iterable[Candidate], more: Sequence[Candidate] = ()
) -> list[Route]:
    """The routes of a product, in the order of the table. `more`, of an extension, come first."""
    ordered = sorted(candidates, key=lambda candidate: _RANKS[candidate.kind])
    return [candidate.route(gemm) for candidate in (*more, *ordered)]
