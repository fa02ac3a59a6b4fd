"""Matrix products: linear, mm, bmm, addmm and baddbmm.

All of them compute y = alpha * (a @ b) + beta * c for every matrix of a batch, with the same kernels. A
linear layer has one matrix, a transposed b, and its bias as c.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from pteron.compiler.ir.extensions import more_routes
from pteron.compiler.ir.integer_rules import matrix_product
from pteron.compiler.ir.rule import (
    HALF,
    Define,
    DType,
    Grid,
    LiveTensor,
    Number,
    Route,
    Shared,
    check,
    describe,
    multiplies,
    numel,
    op,
    rows_of,
)
from pteron.compiler.ops.outputs import SideBySide
from pteron.compiler.ops.products import (
    ANY,
    GEMM,
    SMALL_TILE,
    TEAM_FEW_ROWS,
    TEAM_GEMV,
    Candidate,
    GemmShape,
    KernelKind,
    product_routes,
)
from pteron.compiler.ops.shapes import broadcast, broadcast_strides
from pteron.compiler.ops.workgroups import tile_candidates

# In a team kernel, SLICES lanes divide the depth of four columns. A workgroup has QUADS times four columns.
# If b is transposed, neighbours in depth are neighbours in memory. If not, neighbouring columns are.
TEAMS = {True: {"SLICES": 64, "QUADS": 1}, False: {"SLICES": 16, "QUADS": 8}}


def all_float32(*tensors: LiveTensor | None) -> bool:
    return all(t is None or t.dtype is DType.float32 for t in tensors)


@op(
    "aten.linear.default",
    work=multiplies("x"),
    rows=rows_of("x", mixes=-1),
    integers=matrix_product("x", "weight", "bias"),
)
def linear(x: LiveTensor, weight: LiveTensor, bias: LiveTensor | None, out: LiveTensor) -> list[Route]:
    return linear_product(x, weight, bias, (out,))


def linear_product(
    x: LiveTensor, weight: LiveTensor, bias: LiveTensor | None, outs: tuple[LiveTensor, ...]
) -> list[Route]:
    """x @ weight^T + bias. The columns go to one output, or to several outputs of fixed width."""
    check(weight.rank == 2, f"weight must have 2 dimensions, not shape {describe(weight.shape)}")
    columns, depth = weight.shape
    rows = check_rows(x, depth, "weight")
    check_bias(bias, columns)
    for out in outs:
        out.resize((*x.shape[:-1], columns if len(outs) == 1 else out.max_shape[-1]))
    added = Added(bias, (0, 0, 1)) if bias else None
    return Product(x, weight, outs, (1, rows, columns, depth), added, transposed=True).routes()


def check_rows(x: LiveTensor, depth: int, what: str) -> int:
    """The number of rows of x. Its last dimension must be the depth of the product."""
    check(x.rank >= 1, "x must have at least one dimension")
    check(x.shape[-1] == depth, f"x has rows of {x.shape[-1]} elements, but {what} must have rows of {depth}")
    return numel(x.shape[:-1])


def check_bias(bias: LiveTensor | None, columns: int) -> None:
    if bias is not None:
        check(bias.numel >= columns, f"bias has {bias.numel} elements for {columns} columns")


@op("aten.mm.default", work=multiplies("a"), rows=rows_of("a", mixes=-1), integers=matrix_product("a", "b"))
def mm(a: LiveTensor, b: LiveTensor, out: LiveTensor) -> list[Route]:
    return _matmul(a, b, out, rank=2)


@op("aten.bmm.default", work=multiplies("a"), integers=matrix_product("a", "b"))
def bmm(a: LiveTensor, b: LiveTensor, out: LiveTensor) -> list[Route]:
    return _matmul(a, b, out, rank=3)


@op(
    "aten.addmm.default",
    work=multiplies("a"),
    rows=rows_of("a", mixes=-1),
    integers=matrix_product("a", "b", "c"),
)
def addmm(
    c: LiveTensor, a: LiveTensor, b: LiveTensor, beta: float, alpha: float, out: LiveTensor
) -> list[Route]:
    return _matmul(a, b, out, rank=2, added=(c, beta, alpha))


@op("aten.baddbmm.default", work=multiplies("a"), integers=matrix_product("a", "b", "c"))
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
    """out = a @ b, or alpha * (a @ b) + beta * c if `added` is (c, beta, alpha)."""
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
    """The tensor that is added to a product, and its strides for matrices, rows and columns."""

    c: LiveTensor
    strides: tuple[int, ...]
    beta: float = 1.0
    alpha: float = 1.0  # the factor of the product


@dataclass(frozen=True)
class Product:
    a: LiveTensor
    b: LiveTensor
    outs: tuple[LiveTensor, ...]  # side by side
    sizes: tuple[int, int, int, int]  # batch, rows, columns, depth
    added: Added | None = None
    transposed: bool = False  # b is [columns, depth]

    def routes(self) -> list[Route]:
        """All routes. If the shape of b never changes, only the routes that fit it."""
        candidates = [Candidate(ANY, self._shared.dispatch("matmul_any", self.gemm.element_quads()))]
        if self.has_usual_dtypes:
            candidates += [*self._gpu_candidates(), *self._portable_candidates()]
        return product_routes(self.gemm, candidates, more_routes(self))

    def _gpu_candidates(self) -> list[Candidate]:
        """Team and tile kernels. They work for rows of any length."""
        ragged = not (self.b.is_fixed and self.is_whole)

        def teams(kind: KernelKind, height: int) -> Candidate:
            lanes = TEAMS[self.transposed]
            grid = self.gemm.workgroups(height, 4 * lanes["QUADS"])
            return self.candidate(kind, "matmul_teams", grid, RAGGED=ragged, ROWS=height, **lanes)

        tile = self.candidate(SMALL_TILE, "matmul_tile", (1, 1, 1), RAGGED=ragged)
        return [
            teams(TEAM_GEMV, 1),
            teams(TEAM_FEW_ROWS, 4),
            *tile_candidates(
                tile.dispatch,
                self.gemm,
                columns_first=not self.transposed,
                needs=tile.needs,
                depth=self.sizes[-1] if self.b.is_fixed else 0,
                halved=True,
            ),
        ]

    def _portable_candidates(self) -> list[Candidate]:
        """Independent invocations, for rows that are whole quads, and for rows of any length."""
        grid = self.gemm.invocations(4, 4)
        ragged = replace(self.candidate(GEMM, "matmul", grid, RAGGED=True), variant="ragged")
        if self.b.is_fixed:
            return [self.candidate(GEMM, "matmul", grid, RAGGED=False) if self.is_whole else ragged]
        return [self.candidate(GEMM, "matmul", grid, self.is_whole, RAGGED=False), ragged]

    def candidate(
        self, kind: KernelKind, kernel: str, grid: Grid, when: bool | None = None, /, **defines: Define
    ) -> Candidate:
        # A single float16 element can be stored only if the device has the type f16.
        element, needs = ("f16", (HALF,)) if self.a.dtype is DType.float16 else ("f32", ())
        finish = {"EPILOGUE": False, "ADDED": False}
        dispatch = self._shared.dispatch(kernel, grid, ELEMENT=element, **finish, **defines)
        return Candidate(kind, dispatch, when, needs)

    @property
    def is_whole(self) -> bool:
        """Whether the rows of both operands are whole quads."""
        *_, columns, depth = self.sizes
        return depth % 4 == 0 and (self.transposed or columns % 4 == 0)

    @cached_property
    def gemm(self) -> GemmShape:
        batch, rows, columns, _ = self.sizes
        return GemmShape(rows, columns, batch)

    @cached_property
    def has_usual_dtypes(self) -> bool:
        """Whether all tensors are float32, all are float16, or only b (a weight) has 16 bits."""
        tensors = (self.a, *self.outs, *([self.added.c] if self.added else []))
        dtypes = {t.dtype for t in tensors}
        allowed = (
            (DType.float32, DType.float16, DType.bfloat16) if dtypes == {DType.float32} else (DType.float16,)
        )
        return dtypes in ({DType.float32}, {DType.float16}) and self.b.dtype in allowed

    @cached_property
    def _shared(self) -> Shared:
        added = self.added or Added(self.b, (0, 0, 0), beta=0.0)
        sides = SideBySide.of(self.outs)
        params: dict[str, Number] = {
            **sides.params,
            "first": 0,
            **dict(zip(("batch", "rows", "columns", "depth"), self.sizes, strict=True)),
            **dict(zip(("c_batch", "c_row", "c_column"), added.strides, strict=True)),
            "alpha": added.alpha,
            "beta": added.beta,
        }
        bindings = {"a": self.a, "b": self.b, "c": added.c, **sides.bindings}
        flags = {"HAS_C": self.added is not None, "TRANSPOSED": self.transposed, **sides.defines}
        return Shared(bindings, params, flags)
