"""The `.wgsl` files and the parser of them, without compilation."""

from __future__ import annotations

import re
import struct
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

import pteron.compiler.ops
from pteron.compiler.ir.dispatch import MAX_GROUPS_PER_DIMENSION, Define, fold, threads
from pteron.compiler.ir.dtypes import DType
from pteron.compiler.ops import kernel as kernels
from pteron.compiler.ops import preprocess
from pteron.compiler.ops.preprocess import PreprocessorError

COMPILER = Path(pteron.compiler.ops.__file__).parents[1]


@pytest.mark.parametrize("name", kernels.names())
def test_a_file_numbers_its_bindings_and_enables_nothing(name: str) -> None:
    """With and without conditional lines. The parser finds every binding. No file enables a feature."""
    for value in (0, 1, 2, 4):
        lines = preprocess.expand(kernels._lines(name), defaultdict[str, Any](lambda value=value: value))
        kernel = kernels._parse(name, lines)
        code = re.sub(r"//.*", "", kernel.text)
        assert [b.index for b in kernel.bindings] == list(range(code.count("@binding(")))
        assert not re.search(r"^\s*enable\b", code, re.MULTILINE)


@pytest.mark.parametrize("path", sorted(COMPILER.rglob("*.wgsl")), ids=lambda path: path.stem)
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


def expanded(text: str, **defines: Define) -> list[str]:
    lines = preprocess.read("k", {"k": text, "lib/more": "more of NAME\n"}.__getitem__)
    return [line.text for line in preprocess.expand(lines, defines)]


def test_if_keeps_bindings_when_the_define_is_true(monkeypatch: pytest.MonkeyPatch) -> None:
    first = "//#if TWO\n@group(0) @binding(0) var<storage, read> y: array<f32>;\n//#end\n"
    text = first + "@group(0) @binding(1) var<storage, read> x: array<f32>;\n"
    monkeypatch.setattr(kernels, "_read", lambda name: text)
    for two, found in (False, ["x"]), (True, ["y", "x"]):
        bindings = kernels.load(f"one or two, {two}", {"TWO": two}).bindings
        assert [b.name for b in bindings] == found
        assert [b.index for b in bindings] == list(range(len(found)))


@pytest.mark.parametrize(
    ("condition", "value", "holds"),
    [
        ("N", 2, True),
        ("N", False, False),
        ("not N", 0, True),
        ("N > 1", 2, True),
        ("N > 1", 1, False),
        ("N == 4", 4, True),
        ("N == half", "full", False),
        ("N != half", "full", True),
    ],
)
def test_conditions(condition: str, value: Define, holds: bool) -> None:
    assert expanded(f"//#if {condition}\nyes\n//#else\nno\n//#end\n", N=value) == ["yes" if holds else "no"]


def test_conditions_and_loops_are_nested() -> None:
    text = (
        "//#if OUTER\n//#each i N\n//#if INNER\na[i]\n//#include more x\n//#else\nb[i]\n//#end\n//#end i\n"
        "//#elif OTHER\nc\n//#else\nd\n//#end\nafter\n"
    )
    each = ["{", "a[0u]", "more of x", "}", "{", "a[1u]", "more of x", "}"]
    assert expanded(text, OUTER=True, INNER=True, N=2) == [*each, "after"]
    assert expanded(text, OUTER=True, INNER=False, N=1) == ["{", "b[0u]", "}", "after"]
    assert expanded(text, OUTER=False, OTHER=True) == ["c", "after"]
    assert expanded(text, OUTER=False, OTHER=False) == ["d", "after"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "a\n//#if MASKD\n//#end\n",
            "k.wgsl:2: `//#if MASKD`: the rule does not define MASKD, only MASKED, N",
        ),
        ("//#each i ROWS\n//#end i\n", "k.wgsl:1: .* does not define ROWS"),
        ("//#if N\n", "k.wgsl:1: .* expected //#end of the //#if at line 1"),
        ("\n//#end\n", "k.wgsl:2: .* closes nothing"),
        ("//#if N\n//#else\n//#elif N\n//#end\n", "k.wgsl:3: .* expected //#end of the //#if at line 1"),
        ("//#each i 2\n//#end j\n", "k.wgsl:2: .* expected `//#end i`"),
        ("//#esle\n", "k.wgsl:1: .* there is no such directive"),
        ("    //#if N\n", "k.wgsl:1: .* not at the beginning of the line"),
        ("//#if N and M\n//#end\n", "k.wgsl:1: .* a condition is FLAG"),
    ],
)
def test_a_wrong_directive_is_an_error_with_its_place(text: str, problem: str) -> None:
    with pytest.raises(PreprocessorError, match=problem):
        expanded(text, N=1, MASKED=True)


def test_a_missing_define_names_the_kernel_and_the_file() -> None:
    with pytest.raises(PreprocessorError, match=r"kernel rope: rope\.wgsl:9: .* does not define SEGMENTED"):
        kernels.load("rope", {"HALVES": True})


def test_messages_of_compilers_name_the_file_and_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    files = {
        "k": "fn a() {}\n//#if N > 1\n//#include more\n//#end\n//#each i N\ni + erf4(x);\n//#end i\n",
        "lib/more": "\nfn more() {}\n",
    }
    real = kernels._read
    monkeypatch.setattr(kernels, "_read", lambda file: files[file] if file in files else real(file))
    kernel = kernels.load("k", {"N": 2})
    text = kernels.source(kernel, {}, {"N": 2})
    lines = text.split("\n")

    def explained(found: str, form: str) -> str:
        return kernels.explain(kernel, text, form.format(lines.index(found) + 1))

    assert explained("fn more() {}", "┌─ wgsl:{}:5").endswith(":5 (lib/more.wgsl:2)")
    assert explained("1u + erf4(x);", ":{}:7 error: no x").endswith(":7 (k.wgsl:6) error: no x")
    erf = next(i for i, line in enumerate(real("lib/math").split("\n")) if line.startswith("fn erf4("))
    inside = real("lib/math").split("\n")[erf + 1]
    assert explained(inside, "wgsl:{}:1").endswith(f"(lib/math.wgsl:{erf + 2})")
    assert "(" not in kernels.explain(kernel, text, "wgsl:1:1 in the generated part")


def test_f16_is_enabled_if_the_text_uses_it() -> None:
    kernel = kernels.load("copy")
    dtypes = {"x": DType.float32, "y": DType.float32}
    assert kernels.source(kernel, dtypes, {"T": "f16"}, "alias U = T;").startswith("enable f16;\n")
    assert "enable" not in kernels.source(kernel, dtypes, {"T": "f16"}, "// f16 is not used")


def test_numbers_beyond_float32_are_infinite() -> None:
    field = kernels.Field("eps", 0, 2, "f")
    kernel = kernels.Kernel("k", (), (), (field,))
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
