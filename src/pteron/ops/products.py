"""One table for all matrix products: which kind of kernel runs, for which sizes and on which devices.

A family of products (floats, 4-bit weights, a convolution, ...) offers its kernels, each as one of the kinds
below. The table has the thresholds. So all families change from one kind to another at the same sizes:

    extent = Extent(rows, columns)
    return product_routes(extent, [
        Offer(TEAM_GEMV, Dispatch("mine_teams", bindings, params, extent.workgroups(1, 8))),
        Offer(GEMM, Dispatch("mine", bindings, params, extent.invocations(4, 4))),
    ])

A convolution is a product too. Its rows are the output channels of a group, and its columns the positions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pteron.ir.rule import GPU, SOFTWARE, SUBGROUP, WORKGROUP, Dispatch, Grid, Route, fold, quads, threads

FEW_ROWS = 16  # up to this many rows, teams are faster than tiles, because most rows of a tile would be empty
FEW_PACKED_ROWS = 8  # the same for packed weights, which a team unpacks again for every four rows
FEW_SUBGROUP_ROWS = 8
TILE_COST = 5  # a tile of a subgroup has a fixed cost: as much as five more rows
MIN_TILE_ROWS = 16  # a convolution with fewer rows (channels of a group) would leave most of a tile empty
MANY_ELEMENTS = 128 * 64 * 64  # an output with this many elements has enough large tiles to keep a GPU busy


@dataclass(frozen=True, slots=True)
class Extent:
    """The size of the output of a product: the number of matrices, and their rows and columns."""

    rows: int
    columns: int
    matrices: int = 1

    @property
    def elements(self) -> int:
        return self.matrices * self.rows * self.columns

    def workgroups(self, height: int, width: int) -> Grid:
        """One workgroup for each block of `height` rows and `width` columns."""
        return fold(self._blocks(height, width))

    def invocations(self, height: int, width: int) -> Grid:
        """One invocation for each block."""
        return fold(-(-self._blocks(height, width) // WORKGROUP))

    def element_quads(self) -> Grid:
        """One invocation for every four consecutive elements."""
        return threads(quads(self.elements))

    def _blocks(self, height: int, width: int) -> int:
        return self.matrices * -(-self.rows // height) * -(-self.columns // width)


@dataclass(frozen=True, slots=True, eq=False)
class KernelKind:
    """How a kernel divides its work. This decides the devices and sizes that it is used for."""

    name: str
    home: str | None = None  # the kind of device that it is written for; None: every kind
    needs: tuple[str, ...] = ()
    fits: Callable[[Extent], bool] | None = None  # None: every size


def _up_to(rows: int) -> Callable[[Extent], bool]:
    return lambda extent: extent.rows <= rows


def _fills_tall_tiles(extent: Extent) -> bool:
    """Whether tiles of 32 rows take less time than tiles of 16, for which less of the last tile is empty."""
    tall, low = (-(-extent.rows // height) * (height + TILE_COST) for height in (32, 16))
    return tall < low


def _exceeds_tall_tiles(least: int, most: int) -> Callable[[Extent], bool]:
    """Whether so many rows are left after some tiles of 32 rows."""
    return lambda extent: extent.rows > 32 and least <= extent.rows % 32 <= most


def _is_one_row(extent: Extent) -> bool:
    return extent.rows == 1


# Subgroups: the lanes exchange the elements of one operand.
SUBGROUP_GEMV = KernelKind("subgroup gemv", SOFTWARE, (SUBGROUP,), _is_one_row)
SUBGROUP_TWO_ROWS = KernelKind("subgroup two rows", SOFTWARE, (SUBGROUP,), _up_to(2))
SUBGROUP_FOUR_ROWS = KernelKind("subgroup four rows", SOFTWARE, (SUBGROUP,), _up_to(4))
SUBGROUP_FEW_ROWS = KernelKind("subgroup few rows", SOFTWARE, (SUBGROUP,), _up_to(FEW_SUBGROUP_ROWS))
SUBGROUP_TALL_FEW = KernelKind("tall and few rows", SOFTWARE, (SUBGROUP,), _exceeds_tall_tiles(1, 8))
SUBGROUP_TALL_LOW = KernelKind("tall and low", SOFTWARE, (SUBGROUP,), _exceeds_tall_tiles(9, 16))
SUBGROUP_TALL = KernelKind("tall subgroup gemm", SOFTWARE, (SUBGROUP,), _fills_tall_tiles)
SUBGROUP_GEMM = KernelKind("subgroup gemm", SOFTWARE, (SUBGROUP,))
SUBGROUP_POSITIONS = KernelKind("rows subgroup gemm", SOFTWARE, (SUBGROUP,))
SUBGROUP_UNFOLDED = KernelKind("unfolded subgroup gemm", SOFTWARE, (SUBGROUP,))
# Teams: the lanes divide the depth of a few columns.
TEAM_GEMV = KernelKind("team gemv", GPU, (), _is_one_row)
TEAM_FEW_ROWS = KernelKind("team few rows", GPU, (), _up_to(FEW_ROWS))
TEAM_FEW_PACKED_ROWS = KernelKind("team few rows", GPU, (), _up_to(FEW_PACKED_ROWS))
# Tiles: a workgroup keeps a part of both operands in its memory.
LARGE_TILE = KernelKind("large tile gemm", GPU, (), lambda extent: extent.elements >= MANY_ELEMENTS)
SMALL_TILE = KernelKind("small tile gemm", GPU)
# Independent invocations: for every device.
GEMV = KernelKind("gemv", fits=_is_one_row)
GEMM = KernelKind("gemm")
# One filter per channel: a convolution that is no product of matrices.
DEPTHWISE = KernelKind("depthwise")
# For every device, element type and shape.
ANY = KernelKind("any")

# The fastest kind first: a call uses the first kind that fits its size and that the device can run.
ORDER = (
    SUBGROUP_GEMV,
    SUBGROUP_TWO_ROWS,
    SUBGROUP_FOUR_ROWS,
    SUBGROUP_FEW_ROWS,
    SUBGROUP_TALL_FEW,
    SUBGROUP_TALL_LOW,
    SUBGROUP_TALL,
    SUBGROUP_POSITIONS,
    SUBGROUP_GEMM,
    SUBGROUP_UNFOLDED,
    TEAM_GEMV,
    TEAM_FEW_ROWS,
    TEAM_FEW_PACKED_ROWS,
    GEMV,
    LARGE_TILE,
    SMALL_TILE,
    DEPTHWISE,
    GEMM,
    ANY,
)
_RANKS = {kind: rank for rank, kind in enumerate(ORDER)}


@dataclass(frozen=True, slots=True)
class Offer:
    """A kernel of one kind, and its requirements beyond those of the kind."""

    kind: KernelKind
    dispatch: Dispatch
    when: bool | None = None  # whether it can compute the live shape; None: it can compute every one
    needs: tuple[str, ...] = ()
    before: Dispatch | None = None  # prepares an operand
    variant: str = ""  # distinguishes two offers of one kind: routes of a node have different names

    def route(self, extent: Extent) -> Route:
        kind, when = self.kind, self.when
        if kind.fits is not None:
            when = when is not False and kind.fits(extent)
        dispatches = [self.dispatch] if self.before is None else [self.before, self.dispatch]
        name = f"{self.variant} {kind.name}".lstrip()
        return Route(name, dispatches, when, (*kind.needs, *self.needs), kind.home)


def product_routes(extent: Extent, offers: Iterable[Offer]) -> list[Route]:
    """The routes of a product, in the order of the table."""
    return [offer.route(extent) for offer in sorted(offers, key=lambda offer: _RANKS[offer.kind])]
