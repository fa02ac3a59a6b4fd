"""The size and the kind of device decide the kernel of a product, in the same way for every family."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pteron.ir.dispatch import GPU, HALF, SOFTWARE, SUBGROUP, Dispatch
from pteron.ir.dtypes import DType
from pteron.ops import products
from pteron.ops.products import Extent, KernelKind, Offer, product_routes
from tests.support.operators import sample as samples
from tests.support.operators.sample import OneNodeGraph, Sample, T

LARGEST = 8192
COLUMNS, DEPTH, GROUP = 128, 64, 32
PHONE, LAPTOP, ADAPTER = (), (GPU,), (SOFTWARE, SUBGROUP)


def f32(*shape: int) -> T:
    return T(shape, DType.float32)


def i8(*shape: int) -> T:
    return T(shape, DType.int8)


WEIGHT = T((COLUMNS, DEPTH), DType.float32, fixed=True)
PACKED, SCALES = T((COLUMNS, DEPTH // 2), DType.uint8), f32(DEPTH // GROUP, COLUMNS)
SUMS = T((COLUMNS,), DType.int32)

FAMILIES: dict[str, Callable[[int], list[Any]]] = {
    "aten.linear.default": lambda n: [f32(n, DEPTH), WEIGHT, None, f32(n, COLUMNS)],
    "et_vk.linear_q4gsw.default": lambda n: [f32(n, DEPTH), PACKED, SCALES, GROUP, None, f32(n, COLUMNS)],
    "aten._weight_int8pack_mm.default": lambda n: [
        f32(n, DEPTH), i8(COLUMNS, DEPTH), f32(COLUMNS), f32(n, COLUMNS)
    ],
    "et_vk.linear_q8ta_q8csw.default": lambda n: [
        i8(n, DEPTH), 0.1, 0, i8(COLUMNS, DEPTH), SUMS, f32(COLUMNS), None, f32(n, COLUMNS)
    ],
}  # fmt: skip
SIZES = (1, 2, 3, 8, 9, 16, 17, 4095, 4096)


@pytest.fixture(autouse=True)
def largest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "LARGEST", LARGEST)


def taken(name: str, features: tuple[str, ...]) -> list[str]:
    """The route for each number of rows in SIZES."""
    one = OneNodeGraph(name, Sample(FAMILIES[name], (DType.float32,)), DType.float32, features)
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
    wanted = ["team gemv", *few, "small tile gemm", "small tile gemm", "large tile gemm"]
    assert taken(name, LAPTOP) == wanted


@pytest.mark.parametrize(
    ("name", "few", "many"),
    [
        ("aten.linear.default", ["subgroup few rows"] * 3, "tall subgroup gemm"),
        (
            "et_vk.linear_q4gsw.default",
            ["subgroup two rows", "subgroup four rows", "subgroup gemm"],
            "subgroup gemm",
        ),
    ],
)
def test_on_a_software_adapter_with_subgroups(name: str, few: list[str], many: str) -> None:
    assert taken(name, ADAPTER) == ["subgroup gemv", *few, *["subgroup gemm"] * 2, *[many] * 3]


@pytest.mark.parametrize("name", FAMILIES)
def test_on_a_device_without_features(name: str) -> None:
    one_row = "gemm" if name == "aten.linear.default" else "gemv"
    assert taken(name, PHONE) == [one_row, *["gemm"] * 8]


def test_one_row_of_4_bit_weights_that_teams_cannot_read_does_not_become_a_tile() -> None:
    """With groups of 8, a lane of a team would read words of several groups."""
    narrow = f32(DEPTH // 8, COLUMNS)

    def make(n: int) -> list[Any]:
        return [f32(n, DEPTH), PACKED, narrow, 8, None, f32(n, COLUMNS)]

    one = OneNodeGraph("et_vk.linear_q4gsw.default", Sample(make, (DType.float32,)), DType.float32, LAPTOP)
    one.resize(1)
    plan = one.live.plans[0]
    assert plan is not None and plan.route == "gemv"


def kernel(kind: KernelKind) -> Offer:
    return Offer(kind, Dispatch(kind.name, {}, {}, (1, 1, 1)))


def test_routes_are_in_the_order_of_the_table() -> None:
    offers = [kernel(kind) for kind in reversed(products.ORDER)]
    routes = product_routes(Extent(1, 1), offers)
    assert [route.name for route in routes] == [kind.name for kind in products.ORDER]
    kinds = [value for value in vars(products).values() if isinstance(value, KernelKind)]
    assert set(kinds) == set(products.ORDER)  # a kind without a place could not be offered


def test_a_kernel_may_require_more_than_its_kind() -> None:
    def route(kind: KernelKind, rows: int, when: bool | None) -> tuple[bool | None, Any]:
        (found,) = product_routes(Extent(rows, 8), [Offer(kind, kernel(kind).dispatch, when, (HALF,))])
        return found.when, found.needs

    assert route(products.SUBGROUP_GEMV, 1, None) == (True, (SUBGROUP, HALF))
    assert route(products.SUBGROUP_GEMV, 1, False) == (False, (SUBGROUP, HALF))
    assert route(products.SUBGROUP_GEMV, 2, True) == (False, (SUBGROUP, HALF))
    assert route(products.GEMM, 2, None) == (None, (HALF,))
    assert route(products.GEMM, 2, False) == (False, (HALF,))


def test_grids_cover_the_output() -> None:
    extent = Extent(rows=9, columns=33, matrices=2)
    assert extent.workgroups(4, 32) == (2 * 3 * 2, 1, 1)
    assert extent.invocations(1, 1) == (-(-9 * 33 * 2 // 64), 1, 1)
    assert extent.element_quads() == (-(-9 * 33 * 2 // 256), 1, 1)
