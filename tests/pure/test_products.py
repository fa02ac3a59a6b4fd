"""The size and the kind of device decide the kernel of a product, in the same way for every family."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pteron.compiler.ir.dispatch import GPU, HALF, MANY_REGISTERS, SUBGROUP, Dispatch
from pteron.compiler.ir.dtypes import DType
from pteron.compiler.ops import products
from pteron.compiler.ops.products import Candidate, GemmShape, KernelKind, product_routes
from pteron.tools.verify.catalogue import OperatorEntry
from pteron.tools.verify.catalogue.arguments import F, T
from pteron.tools.verify.catalogue.types import F32
from tests.support.operators.graphs import LiveEntry

LARGEST = 8192
COLUMNS, DEPTH, GROUP = 128, 64, 32
PHONE, LAPTOP = (), (GPU,)


def i8(*shape: int) -> T:
    return T(shape, DType.int8)


WEIGHT = T((COLUMNS, DEPTH), DType.float32, fixed=True)
PACKED, SCALES = T((COLUMNS, DEPTH // 2), DType.uint8), F(DEPTH // GROUP, COLUMNS)
SUMS = T((COLUMNS,), DType.int32)

FAMILIES: dict[str, Callable[[int], list[Any]]] = {
    "aten.linear.default": lambda n: [F(n, DEPTH), WEIGHT, None, F(n, COLUMNS)],
    "et_vk.linear_q4gsw.default": lambda n: [F(n, DEPTH), PACKED, SCALES, GROUP, None, F(n, COLUMNS)],
    "aten._weight_int8pack_mm.default": lambda n: [
        F(n, DEPTH), i8(COLUMNS, DEPTH), F(COLUMNS), F(n, COLUMNS)
    ],
    "et_vk.linear_q8ta_q8csw.default": lambda n: [
        i8(n, DEPTH), 0.1, 0, i8(COLUMNS, DEPTH), SUMS, F(COLUMNS), None, F(n, COLUMNS)
    ],
}  # fmt: skip
SIZES = (1, 2, 3, 8, 9, 16, 17, 4095, 4096)


def live(name: str, make: Callable[[int], list[Any]], features: tuple[str, ...]) -> LiveEntry:
    return LiveEntry(OperatorEntry(name, make, F32, sizes=(LARGEST,)), DType.float32, features)


def taken(name: str, features: tuple[str, ...]) -> list[str]:
    """The route for each number of rows in SIZES."""
    one = live(name, FAMILIES[name], features)
    found = []
    for rows in SIZES:
        one.resize(rows)
        plan = one.live.plans[0]
        assert plan is not None
        found.append(plan.route)
    return found


@pytest.mark.parametrize("name", FAMILIES)
def test_on_a_gpu(name: str) -> None:
    few = ["team few rows"] * 3 + (
        ["small tile gemm"] * 2 if name == "et_vk.linear_q4gsw.default" else ["team few rows"] * 2
    )
    tile = "small tile gemm" if name == "et_vk.linear_q8ta_q8csw.default" else "tall tile gemm"
    wanted = ["team gemv", *few, "small tile gemm", tile]
    assert taken(name, LAPTOP) == [*wanted, tile]
    assert taken(name, (*LAPTOP, MANY_REGISTERS)) == [*wanted, "broad tile gemm"]


@pytest.mark.parametrize("name", FAMILIES)
def test_on_a_device_without_features(name: str) -> None:
    one_row = "gemm" if name == "aten.linear.default" else "gemv"
    assert taken(name, PHONE) == [one_row, *["gemm"] * 8]


def test_one_row_of_4_bit_weights_that_teams_cannot_read_does_not_become_a_tile() -> None:
    """With groups of 8, a lane of a team would read words of several groups."""
    narrow = F(DEPTH // 8, COLUMNS)

    def make(n: int) -> list[Any]:
        return [F(n, DEPTH), PACKED, narrow, 8, None, F(n, COLUMNS)]

    one = live("et_vk.linear_q4gsw.default", make, LAPTOP)
    one.resize(1)
    plan = one.live.plans[0]
    assert plan is not None and plan.route == "gemv"


def kernel(kind: KernelKind) -> Candidate:
    return Candidate(kind, Dispatch(kind.name, {}, {}, (1, 1, 1)))


def test_routes_are_in_the_order_of_the_table() -> None:
    routes = product_routes(GemmShape(1, 1), [kernel(kind) for kind in reversed(products.ORDER)])
    assert [route.name for route in routes] == [kind.name for kind in products.ORDER]
    kinds = [value for value in vars(products).values() if isinstance(value, KernelKind)]
    kinds += products.HALVED_TILES.values()
    assert set(kinds) == set(products.ORDER)  # a kind without a place could not be used


def test_a_kernel_may_require_more_than_its_kind() -> None:
    def route(kind: KernelKind, rows: int, when: bool | None) -> tuple[bool | None, Any]:
        found = Candidate(kind, kernel(kind).dispatch, when, (HALF,)).route(GemmShape(rows, 8))
        return found.when, found.needs

    subgroup_gemv = KernelKind("subgroup gemv", needs=(SUBGROUP,), fits=products.is_one_row)
    assert route(subgroup_gemv, 1, None) == (True, (SUBGROUP, HALF))
    assert route(subgroup_gemv, 1, False) == (False, (SUBGROUP, HALF))
    assert route(subgroup_gemv, 2, True) == (False, (SUBGROUP, HALF))
    assert route(products.GEMM, 2, None) == (None, (HALF,))
    assert route(products.GEMM, 2, False) == (False, (HALF,))


def test_grids_cover_the_output() -> None:
    gemm = GemmShape(rows=9, columns=33, matrices=2)
    assert gemm.workgroups(4, 32) == (2 * 3 * 2, 1, 1)
    assert gemm.invocations(1, 1) == (-(-9 * 33 * 2 // 64), 1, 1)
    assert gemm.element_quads() == (-(-9 * 33 * 2 // 256), 1, 1)
