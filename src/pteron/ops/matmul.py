"""Matrix products: linear, mm, bmm and their relatives.

All of them are y = alpha * (a @ b) + beta * c for each of a batch, and share their kernels: a linear has a
transposed b, one matrix, and its bias for c.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from pteron.ir.rule import (
    GPU,
    HALF,
    SOFTWARE,
    SUBGROUP,
    WORKGROUP,
    Define,
    Dispatch,
    DType,
    Grid,
    LiveTensor,
    Number,
    Route,
    Shared,
    check,
    describe,
    fold,
    numel,
    op,
)
from pteron.ops.outputs import SideBySide
from pteron.ops.shapes import broadcast, broadcast_strides

TILE = 4  # rows and columns that one invocation computes

# On GPUs. Teams have so many lanes to the depth of four columns, and so many fours: where b is transposed,
# neighbours in depth lie together, otherwise neighbouring columns do.
TEAMS = {True: {"SLICES": 64, "QUADS": 1}, False: {"SLICES": 16, "QUADS": 8}}
TEAM_ROWS = 4
FEW_ROWS = 16  # for which teams beat tiles, which would be few and mostly empty
# Tiles have so many lanes down and across, with 4 * HEIGHT rows and four columns to each.
SMALL_TILE = {"DOWN": 8, "ACROSS": 8, "HEIGHT": 1}
LARGE_TILE = {"DOWN": 8, "ACROSS": 16, "HEIGHT": 2}
MANY_ELEMENTS = 128 * 64 * 64  # of an output whose large tiles keep a GPU busy

# On software adapters.
LANES = 8


def tiles(rows: int, columns: int, batch: int = 1) -> Grid:
    """One invocation per TILE x TILE block of the output."""
    blocks = -(-rows // TILE) * -(-columns // TILE) * batch
    return fold(-(-blocks // WORKGROUP))


def all_float32(*tensors: LiveTensor | None) -> bool:
    return all(t is None or t.dtype is DType.float32 for t in tensors)


@op("aten.linear.default")
def linear(x: LiveTensor, weight: LiveTensor, bias: LiveTensor | None, out: LiveTensor) -> list[Route]:
    return linear_product(x, weight, bias, (out,))


def linear_product(
    x: LiveTensor, weight: LiveTensor, bias: LiveTensor | None, outs: tuple[LiveTensor, ...]
) -> list[Route]:
    """x @ weight^T + bias, its columns in one output, or dealt to several of fixed width."""
    check(weight.rank == 2, f"weight must have 2 dimensions, not shape {describe(weight.shape)}")
    columns, depth = weight.shape
    rows = check_rows(x, depth, "weight")
    check_bias(bias, columns)
    for out in outs:
        out.resize((*x.shape[:-1], columns if len(outs) == 1 else out.max_shape[-1]))
    added = Added(bias, (0, 0, 1)) if bias else None
    return Product(x, weight, outs, (1, rows, columns, depth), added, transposed=True).routes()


def tiles_1d(elements: int) -> Grid:
    """One invocation per four neighbouring elements of the output."""
    return fold(-(-elements // (4 * WORKGROUP)))


def check_rows(x: LiveTensor, depth: int, what: str) -> int:
    """The number of rows of x, whose last dimension must be the depth of the product."""
    check(x.rank >= 1, "x must have at least one dimension")
    check(x.shape[-1] == depth, f"x has rows of {x.shape[-1]} elements, but {what} wants {depth}")
    return numel(x.shape[:-1])


def check_bias(bias: LiveTensor | None, columns: int) -> None:
    if bias is not None:
        check(bias.numel >= columns, f"bias has {bias.numel} elements for {columns} columns")


@op("aten.mm.default")
def mm(a: LiveTensor, b: LiveTensor, out: LiveTensor) -> list[Route]:
    return _matmul(a, b, out, rank=2)


@op("aten.bmm.default")
def bmm(a: LiveTensor, b: LiveTensor, out: LiveTensor) -> list[Route]:
    return _matmul(a, b, out, rank=3)


@op("aten.addmm.default")
def addmm(
    c: LiveTensor, a: LiveTensor, b: LiveTensor, beta: float, alpha: float, out: LiveTensor
) -> list[Route]:
    return _matmul(a, b, out, rank=2, added=(c, beta, alpha))


@op("aten.baddbmm.default")
def baddbmm(
    c: LiveTensor, a: LiveTensor, b: LiveTensor, beta: float, alpha: float, out: LiveTensor
) -> list[Route]:
    return _matmul(a, b, out, rank=3, added=(c, beta, alpha))


def _matmul(
    a: LiveTensor,
    b: LiveTensor,
    out: LiveTensor,
    *,
    rank: int,
    added: tuple[LiveTensor, float, float] | None = None,
) -> list[Route]:
    """out = a @ b, or alpha * (a @ b) + beta * c where `added` is (c, beta, alpha)."""
    product = f"{describe(a.shape)} @ {describe(b.shape)}"
    check(a.rank == b.rank == rank, f"both operands must have {rank} dimensions: {product}")
    check(a.shape[:-2] == b.shape[:-2], f"batches differ: {product}")
    check(b.shape[-2] == a.shape[-1], f"inner dimensions differ: {product}")
    batch, rows, depth, columns = numel(a.shape[:-2]), a.shape[-2], a.shape[-1], b.shape[-1]
    out.resize((*a.shape[:-1], columns))
    if added is None:
        return Product(a, b, (out,), (batch, rows, columns, depth)).routes()
    c, beta, alpha = added
    check(
        broadcast(c.shape, out.shape) == out.shape,
        f"{describe(c.shape)} does not broadcast to {describe(out.shape)}",
    )
    strides = broadcast_strides((1,) * (3 - c.rank) + c.shape, (batch, rows, columns))
    return Product(a, b, (out,), (batch, rows, columns, depth), Added(c, strides, beta, alpha)).routes()


@dataclass(frozen=True, slots=True)
class Added:
    """What is added to a product, and how far it is from one matrix, row and column to the next."""

    c: LiveTensor
    strides: tuple[int, ...]
    beta: float = 1.0
    alpha: float = 1.0  # of the product


@dataclass(frozen=True)
class Product:
    a: LiveTensor
    b: LiveTensor
    outs: tuple[LiveTensor, ...]  # side by side
    sizes: tuple[int, int, int, int]  # batch, rows, columns, depth
    added: Added | None = None
    transposed: bool = False  # b is [columns, depth]

    def routes(self) -> list[Route]:
        """All there are, or where nothing about b ever changes, those that may ever be taken."""
        batch, rows, columns, _ = self.sizes
        general = Route("any", [self._shared.dispatch("matmul_any", tiles_1d(batch * rows * columns))])
        tensors = (self.a, self.b, *self.outs, self.added.c if self.added else None)
        dtypes = {t.dtype for t in tensors if t is not None}
        if dtypes not in ({DType.float32}, {DType.float16}):
            return [general]
        # Elements of float16 can be stored one at a time only where shaders know them.
        element, needs = ("f16", (HALF,)) if dtypes == {DType.float16} else ("f32", ())
        gpu = self._gpu_routes(element, needs)
        if self.b.is_fixed and not self._is_whole:
            return [*gpu, general]
        whole = None if self.b.is_fixed else self._is_whole
        tile = self._shared.dispatch("matmul", tiles(rows, columns, batch), ELEMENT=element)
        plain = Route("vec4", [tile], when=whole, needs=needs)
        return [*gpu, *self._subgroup_routes(element, needs, whole), plain, general]

    def _gpu_routes(self, element: str, needs: tuple[str, ...]) -> list[Route]:
        batch, rows, columns, _ = self.sizes
        ragged = not (self.b.is_fixed and self._is_whole)

        def route(
            name: str, kernel: str, height: int, width: int, when: bool | None, **defines: int
        ) -> Route:
            dispatch = self._blocks(kernel, height, width, ELEMENT=element, RAGGED=ragged, **defines)
            return Route(name, [dispatch], when=when, needs=needs, home=GPU)

        def teams(name: str, height: int, when: bool) -> Route:
            lanes = TEAMS[self.transposed]
            return route(name, "matmul_teams", height, 4 * lanes["QUADS"], when, ROWS=height, **lanes)

        def tiled(name: str, lanes: Mapping[str, int], when: bool | None) -> Route:
            height, width = 4 * lanes["HEIGHT"] * lanes["DOWN"], 4 * lanes["ACROSS"]
            return route(name, "matmul_tile", height, width, when, **lanes)

        return [
            teams("team gemv", 1, rows == 1),
            teams("team few rows", TEAM_ROWS, rows <= FEW_ROWS),
            tiled("large tile gemm", LARGE_TILE, batch * rows * columns >= MANY_ELEMENTS),
            tiled("small tile gemm", SMALL_TILE, None),
        ]

    def _subgroup_routes(self, element: str, needs: tuple[str, ...], whole: bool | None) -> list[Route]:
        """Kernels whose lanes share a: for one row, and for tiles of eight and of sixteen."""
        rows = self.sizes[1]

        def route(name: str, height: int, when: bool | None) -> Route:
            pieces = {"ALONE": height == 1, "EIGHT": height >= 8, "SIXTEEN": height == 16}
            dispatch = self._blocks(
                "matmul_subgroup", height, 4 * LANES, ELEMENT=element, ROWS=height, LANES=LANES, **pieces
            )
            return Route(name, [dispatch], when=when, needs=(SUBGROUP, *needs), home=SOFTWARE)

        return [
            route("subgroup gemv", 1, whole is not False and rows == 1),
            route("subgroup few rows", 8, whole is not False and rows <= 8),
            route("subgroup gemm", 16, whole),
        ]

    @property
    def _is_whole(self) -> bool:
        """Whether rows of both operands are made of whole quads."""
        *_, columns, depth = self.sizes
        return depth % 4 == 0 and (self.transposed or columns % 4 == 0)

    def _blocks(self, kernel: str, height: int, width: int, **defines: Define) -> Dispatch:
        """One workgroup for each block of the output."""
        batch, rows, columns, _ = self.sizes
        grid = fold(batch * -(-rows // height) * -(-columns // width))
        return self._shared.dispatch(kernel, grid, **defines)

    @cached_property
    def _shared(self) -> Shared:
        added = self.added or Added(self.b, (0, 0, 0), beta=0.0)
        sides = SideBySide.of(self.outs)
        params: dict[str, Number] = {
            **sides.params,
            **dict(zip(("batch", "rows", "columns", "depth"), self.sizes, strict=True)),
            **dict(zip(("c_batch", "c_row", "c_column"), added.strides, strict=True)),
            "alpha": added.alpha,
            "beta": added.beta,
        }
        bindings = {"a": self.a, "b": self.b, "c": added.c, **sides.bindings}
        flags = {"HAS_C": self.added is not None, "TRANSPOSED": self.transposed, **sides.defines}
        return Shared(bindings, params, flags)
