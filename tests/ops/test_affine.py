"""Linear layers and embeddings with coded weights, compared with torch and the decoded weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from pteron.compiler.ir.dispatch import WIDE
from pteron.compiler.ops.affine import INTERLEAVED
from pteron.engine.devices.opening import Device, open_device
from pteron.engine.devices.wgpu import wgpu_device
from pteron.llm.gguf.codes import Coded, Codes, code
from tests.support.rules import Fixed, check_rule

LEVELS = tuple(np.linspace(-1, 1, 16) ** 3)


def coded(
    rows: int,
    depth: int,
    bits: int,
    group: int,
    *,
    minima: bool = False,
    full: bool = False,
    table: bool = False,
    per_block: int = 0,
) -> Coded:
    """Random weights; if `full`, their scales are too small for float16; else maybe in super-blocks."""
    random = np.random.default_rng(rows)
    groups = depth // group

    def floats() -> Any:
        scales = random.uniform(0.5, 1, (rows, groups)).astype(np.float16).astype(np.float32)
        return scales * np.float32(1e-7) if full else scales

    codes = random.integers(0, 1 << bits, (rows, depth), dtype=np.uint8)
    zero = 0 if minima or table else 1 << (bits - 1)
    levels = LEVELS if table else None
    if per_block:
        return code(super_blocks(codes, random, bits, zero, groups, per_block, minima, levels))
    made = code(Codes(codes, floats(), bits, zero, -floats() if minima else None, levels))
    assert made.scales.dtype == (np.float32 if full else np.float16)
    return made


def super_blocks(
    codes: Any, random: Any, bits: int, zero: int, groups: int, per_block: int, minima: bool, table: Any
) -> Codes:
    """Levels of all signs, and factors that have no more bits than float16."""
    rows, kinds = len(codes), 2 if minima else 1
    levels = random.integers(-128, 128, (kinds, rows, groups), dtype=np.int8)
    factors = random.uniform(0.004, 0.008, (rows, groups // per_block, kinds)).astype(np.float16)
    below = levels[1] if minima else None
    return Codes(codes, levels[0], bits, zero, below, table, factors.astype(np.float32))


def arguments(weight: Coded, interleaved: bool = False) -> list[Any]:
    table = None if weight.table is None else Fixed(torch.tensor(weight.table, dtype=torch.float32))
    words, scales = torch.from_numpy(weight.words), torch.from_numpy(weight.scales)
    if interleaved:
        words = words.reshape(len(words) // 4, 4, -1, weight.bits // 2).transpose(1, 2).contiguous()
    return [
        Fixed(words, INTERLEAVED if interleaved else ""),
        Fixed(scales),
        weight.bits,
        weight.group_size,
        weight.zero,
        table,
    ]


# Every plane and every form of scales is in one of the first, which all kernels are tested with.
FORMS: dict[str, dict[str, Any]] = {
    "2 bits, minima": {"bits": 2, "group": 16, "minima": True},
    "4 bits, a table": {"bits": 4, "group": 32, "table": True},
    "7 bits, full minima": {"bits": 7, "group": 32, "minima": True, "full": True},
    "8 bits, full scales": {"bits": 8, "group": 128, "full": True},
    "6 bits, super-blocks": {"bits": 6, "group": 16, "per_block": 8},
    "2 bits, super-blocks with minima": {"bits": 2, "group": 16, "minima": True, "per_block": 16},
}
OTHER_FORMS: dict[str, dict[str, Any]] = {
    "3 bits": {"bits": 3, "group": 16},
    "4 bits": {"bits": 4, "group": 32},
    "4 bits, minima": {"bits": 4, "group": 32, "minima": True},
    "5 bits, minima": {"bits": 5, "group": 32, "minima": True},
    "6 bits": {"bits": 6, "group": 16},
    "8 bits": {"bits": 8, "group": 32},
}


@pytest.mark.parametrize("form", FORMS)
def test_linear(routed: Device, form: str) -> None:
    check_linear(routed, coded(70, 256, **FORMS[form]), (19, 1, 2, 8, 4, 19))


@pytest.mark.parametrize("form", OTHER_FORMS)
def test_linear_with_other_weight_formats(device: Device, form: str) -> None:
    check_linear(device, coded(70, 96, **OTHER_FORMS[form]), (19, 1, 8, 19))


@pytest.mark.parametrize(
    ("depth", "form", "lives"),
    [
        (48, {"bits": 5, "group": 16}, (3, 1, 3)),  # a word of single bits is half empty
        (24, {"bits": 3, "group": 8}, (1030, 9, 1014)),  # enough for large tiles
        (60, {"bits": 6, "group": 20, "minima": True}, (3, 1, 3)),  # groups that are no whole words
    ],
)
def test_linear_of_other_sizes(
    routed: Device, depth: int, form: dict[str, Any], lives: tuple[int, ...]
) -> None:
    check_linear(routed, coded(518, depth, **form), lives)


def check_linear(
    device: Device,
    weight: Coded,
    lives: tuple[int, ...],
    route: str | None = None,
    interleaved: bool = False,
) -> None:
    matrix = torch.from_numpy(weight.dequantize())
    bias = torch.linspace(-1, 1, weight.rows)

    def product(x: torch.Tensor, *rest: Any) -> torch.Tensor:
        return torch.nn.functional.linear(x, matrix, bias)

    def make(n: int) -> list[Any]:
        return [torch.randn(n, weight.depth), *arguments(weight, interleaved), Fixed(bias)]

    atol = 1e-4 * float(matrix.abs().max())
    check_rule(
        device, "pteron.linear_affine.default", make, product, lives, rtol=1e-4, atol=atol, route=route
    )


@pytest.mark.parametrize("route", [None, "subgroup two rows", "subgroup four rows", "subgroup few rows"])
@pytest.mark.parametrize("form", ["4 bits, minima", "8 bits"])
@pytest.mark.parametrize("depth", [80, 96])  # 96: whole pairs of parts
def test_a_few_rows(device: Device, depth: int, form: str, route: str | None) -> None:
    """Every number of rows, by the kernel for it and by the kernels for more rows."""
    weight = coded(70, depth, **OTHER_FORMS[form])
    check_linear(device, weight, (9, 1, 2, 3, 4, 5, 6, 7, 8, 9, 2), route)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("form", ["4 bits, minima", "8 bits"])
def test_without_64_bit_integers(monkeypatch: pytest.MonkeyPatch, form: str, interleaved: bool) -> None:
    features = tuple(feature for feature in wgpu_device._FEATURES if feature != WIDE)
    monkeypatch.setattr(wgpu_device, "_FEATURES", features)
    narrow = open_device()
    assert WIDE not in narrow.features
    weight = coded(68, 128, **OTHER_FORMS[form])
    check_linear(narrow, weight, (9, 1, 4, 9), interleaved=interleaved)


@pytest.mark.parametrize("form", ["4 bits", "4 bits, minima", "8 bits"])
def test_interleaved_weights(routed: Device, form: str) -> None:
    """By the kernels of software adapters, and by the one for every device."""
    check_linear(routed, coded(68, 96, **OTHER_FORMS[form]), (9, 1, 2, 3, 4, 8, 9), interleaved=True)


@pytest.mark.parametrize("form", ["4 bits, minima", "8 bits"])
def test_an_interleaved_embedding(device: Device, form: str) -> None:
    weight = coded(12, 96, **OTHER_FORMS[form])
    matrix = torch.from_numpy(weight.dequantize())

    def make(n: int) -> list[Any]:
        return [*arguments(weight, interleaved=True), torch.randint(0, 12, (1, n))]

    check_rule(
        device, "pteron.embedding_affine.default", make, lambda *args: matrix[args[-1].long()], atol=0, rtol=0
    )


@pytest.mark.parametrize("widths", [(64, 132), (4, 64, 8)])
def test_siblings(routed: Device, widths: tuple[int, ...]) -> None:
    weight = coded(sum(widths), 64, 4, 32, minima=True)
    matrix = torch.from_numpy(weight.dequantize())

    def products(x: torch.Tensor, *rest: Any) -> list[torch.Tensor]:
        return list(torch.nn.functional.linear(x, matrix).split(widths, dim=-1))

    def make(n: int) -> list[Any]:
        return [torch.randn(n, 64), *arguments(weight), None]

    check_rule(routed, "pteron.linears_affine", make, products, (19, 1, 3, 8, 2, 19), rtol=1e-4, atol=1e-3)


def test_activations_of_float16(device: Device) -> None:
    weight = coded(6, 64, 4, 32, minima=True)
    matrix = torch.from_numpy(weight.dequantize())

    def product(x: torch.Tensor, *rest: Any) -> torch.Tensor:
        return (x.float() @ matrix.T).half()

    def make(n: int) -> list[Any]:
        return [torch.randn(n, 64).half(), *arguments(weight), None]

    check_rule(device, "pteron.linear_affine.default", make, product, rtol=1e-3, atol=2e-2)


@pytest.mark.parametrize("form", FORMS | OTHER_FORMS)
def test_embedding(device: Device, form: str) -> None:
    """Every bit is equal to numpy's decoding."""
    weight = coded(9, 256, **(FORMS | OTHER_FORMS)[form])
    matrix = torch.from_numpy(weight.dequantize())

    def make(n: int) -> list[Any]:
        return [*arguments(weight), torch.randint(0, 9, (1, n))]

    def rows(*args: Any) -> torch.Tensor:
        return matrix[args[-1]]

    check_rule(device, "pteron.embedding_affine.default", make, rows, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bits": 9}, "bits must be from 2 to 8"),
        ({"group": 0}, "group_size must be positive"),
        ({"words": torch.zeros(6, 4, dtype=torch.int32)}, r"weights must be int32 \[rows, 8 or more\]"),
        ({"scales": torch.zeros(6, 1)}, r"scales must be floats \[6, 2\]"),
        ({"scales": torch.zeros(6, 3, 2, dtype=torch.int32)}, r"must be int32 \[6, a divisor of 2, words\]"),
        ({"scales": torch.zeros(6, 1, 2, dtype=torch.int32)}, "must have a multiple of 4 groups"),
        ({"table": torch.zeros(4)}, "the table must have 16 float32 elements"),
    ],
)
def test_invalid_arguments_are_refused(device: Device, change: dict[str, Any], message: str) -> None:
    given = {
        "words": torch.zeros(6, 8, dtype=torch.int32),
        "scales": torch.zeros(6, 2),
        "bits": 4,
        "group": 32,
        "table": None,
    } | change
    x, table = torch.zeros(3, 64), given["table"]
    args = [x, Fixed(given["words"]), Fixed(given["scales"]), given["bits"], given["group"], 0]
    with pytest.raises(Exception, match=message):
        check_rule(
            device,
            "pteron.linear_affine.default",
            lambda n: [*args, None if table is None else Fixed(table), None],
            lambda *given: torch.zeros(3, 6),
        )
