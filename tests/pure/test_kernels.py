"""The `.wgsl` files and the parser of them, without compilation."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest

import pteron.ops
from pteron.ir.dispatch import MAX_GROUPS_PER_DIMENSION, fold, threads
from pteron.ir.dtypes import DType
from pteron.ops import kernel as kernels

WGSL = Path(pteron.ops.__file__).parent / "wgsl"
NAMES = sorted(path.stem for path in WGSL.glob("*.wgsl"))


@pytest.mark.parametrize("name", NAMES)
def test_a_file_numbers_its_bindings_and_enables_nothing(name: str) -> None:
    """With and without conditional lines. The parser finds every binding. No file enables a feature."""
    for flags in (frozenset[str](), kernels._flags(name)):
        kernel = kernels.load(name, dict.fromkeys(flags, True))
        code = re.sub(r"//.*", "", kernel.text)
        assert [b.index for b in kernel.bindings] == list(range(code.count("@binding(")))
        assert not re.search(r"^\s*enable\b", code, re.MULTILINE)


@pytest.mark.parametrize("path", sorted(WGSL.rglob("*.wgsl")), ids=lambda path: path.stem)
def test_every_storage_binding_has_a_comment_with_its_shape(path: Path) -> None:
    for line in path.read_text("utf-8").splitlines():
        if "var<storage" in line:
            assert re.search(r";\s*// \S", line), f"say its shape in a comment: {line}"


def test_params_are_packed_by_name_at_wgsl_offsets() -> None:
    kernel = kernels.load("binary")
    values = {field.name: 0 for field in kernel.fields} | {"quads": 7, "sizes": (3, 5), "b_strides": (1, 0)}
    packed = kernel.pack(values)
    at = {field.name: field.offset for field in kernel.fields}
    assert at["sizes"] % 16 == at["a_strides"] % 16 == at["b_strides"] % 16 == 0
    assert struct.unpack_from("<I", packed, at["quads"]) == (7,)
    assert struct.unpack_from("<8I", packed, at["sizes"]) == (3, 5, 0, 0, 0, 0, 0, 0)
    assert len(packed) == kernel.params_nbytes


def test_if_keeps_lines_when_the_define_is_true(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "@group(0) @binding(0) var<storage, read> x: array<f32>;\n"
    more = "//#if TWO\n@group(0) @binding(1) var<storage, read> y: array<f32>;\n//#end\n"
    monkeypatch.setattr(kernels, "_read", lambda name: text + more)
    assert [b.name for b in kernels.load("one or two", {"TWO": False}).bindings] == ["x"]
    assert [b.name for b in kernels.load("one or two", {"TWO": True}).bindings] == ["x", "y"]


def test_each_repeats_lines() -> None:
    inner = "//#each j M\nx[i][j] = row * j;\n//#end j\n"
    text = kernels._unroll(f"before\n//#each i N\n{inner}//#end i\nafter\n", {"N": 2, "M": 1})
    first, second = ("{\n{\n" + f"x[{i}u][0u] = row * 0u;\n" + "}\n}\n" for i in (0, 1))
    assert text == f"before\n{first}{second}after\n"


def test_f16_is_enabled_if_the_text_uses_it() -> None:
    kernel = kernels.load("copy")
    dtypes = {"x": DType.float32, "y": DType.float32}
    assert kernels.source(kernel, dtypes, {"T": "f16"}).startswith("enable f16;\n")
    assert "enable" not in kernels.source(kernel, dtypes, {"T": "f32"}, "// f16")


def test_wide_words_are_for_bindings_that_are_moved_in_quads(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["quads", "elements", "stores", "halves"]
    declared = [
        f"@group(0) @binding({i}) var<storage, read_write> {name}: array<{name}_word>;\n"
        for i, name in enumerate(names)
    ]
    body = (
        "quads_put(0u, halves_quad(0u) + quads_at(5u) + elements_at(0u)); stores_set(1u, stores_quad(0u).x);"
    )
    monkeypatch.setattr(kernels, "_read", lambda name: "".join(declared) + body if name == "moves" else "")
    kernel = kernels.load("moves")
    dtypes = dict.fromkeys(names, DType.float32) | {"halves": DType.float16}
    words = {name: f"alias {name}_word = vec2<u64>;" for name in names}
    text = kernels.source(kernel, dtypes, {}, wide=True)
    assert [name for name, word in words.items() if word in text] == ["quads"]
    assert "u64" not in kernels.source(kernel, dtypes, {})


def test_a_file_may_have_a_narrow_and_a_wide_form(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "fn before() {}\n//#narrow\nalias t = u32;\n//#wide\nalias t = u64;\n//#end wide\nfn after() {}\n"
    monkeypatch.setattr(kernels, "_read", lambda name: text if name == "two forms" else "")
    kernel = kernels.load("two forms")
    for wide, kept in (False, "u32"), (True, "u64"):
        assert f"fn before() {{}}\nalias t = {kept};\nfn after() {{}}\n" in kernels.source(
            kernel, {}, {}, wide=wide
        )


def test_numbers_beyond_float32_are_infinite() -> None:
    field = kernels.Field("eps", 0, 2, "f")
    kernel = kernels.Kernel("k", "", (), (field,))
    assert struct.unpack("<2f", kernel.pack({"eps": (1e308, -1e39)})[:8]) == (float("inf"), float("-inf"))


def test_a_parameter_too_many_or_too_few_is_an_error() -> None:
    kernel = kernels.load("copy")
    with pytest.raises(KeyError, match=r"kernel copy: Params has \['words'\], but the rule gave \['wrods'\]"):
        kernel.pack({"wrods": 1})
    with pytest.raises(ValueError, match="parameter words = -1"):
        kernel.pack({"words": -1})


def test_a_binding_with_a_literal_type_accepts_only_its_dtype() -> None:
    kernel = kernels.load("conv")
    assert kernel.binding("x").accepts(DType.float32)
    assert not kernel.binding("x").accepts(DType.int32)
    assert kernels.load("unary").binding("x").accepts(DType.bool)


@pytest.mark.parametrize("groups", [0, 1, 65535, 65536, 65537, 10**6, 4 * 10**9])
def test_long_grids_become_two_dimensional(groups: int) -> None:
    x, y, z = fold(groups)
    assert x <= MAX_GROUPS_PER_DIMENSION
    assert y <= MAX_GROUPS_PER_DIMENSION
    assert z == 1
    assert x * y >= groups
    assert x * y - groups < max(x, 1), "at most one row is partly idle"


def test_threads_round_up() -> None:
    assert threads(0) == (0, 1, 1)
    assert threads(1) == (1, 1, 1)
    assert threads(65) == (2, 1, 1)
