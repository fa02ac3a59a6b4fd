"""The package for software adapters adds routes. Nothing needs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import pteron
from pteron.compiler.ir.dispatch import SOFTWARE, SUBGROUP
from pteron.compiler.ir.dtypes import DType
from pteron.compiler.ops import kernel as kernels
from pteron.compiler.ops.products import KernelKind
from tests.pure.test_layers import imports
from tests.pure.test_products import kernel, taken

kinds = pytest.importorskip(
    "pteron.compiler.software.kinds", reason="the package for software adapters is deleted"
)

ROOT = Path(pteron.__file__).parent
PACKAGE = "pteron.compiler.software"
ADAPTER = (SOFTWARE, SUBGROUP)


@pytest.mark.parametrize(
    ("name", "few", "many"),
    [
        ("aten.linear.default", ["subgroup few rows"] * 3, "subgroup 32 rows"),
        (
            "et_vk.linear_q4gsw.default",
            ["subgroup two rows", "subgroup four rows", "subgroup gemm"],
            "subgroup gemm",
        ),
    ],
)
def test_on_a_software_adapter_with_subgroups(name: str, few: list[str], many: str) -> None:
    assert taken(name, ADAPTER) == ["subgroup gemv", *few, *["subgroup gemm"] * 2, *[many] * 3]


def test_kinds_are_in_the_order_of_the_table() -> None:
    found = kinds.in_order(kernel(kind) for kind in reversed(kinds.ORDER))
    assert [candidate.kind for candidate in found] == list(kinds.ORDER)
    known = [value for value in vars(kinds).values() if isinstance(value, KernelKind)]
    assert set(known) == set(kinds.ORDER)  # a kind without a place could not be used


def test_wide_words_are_for_bindings_that_are_moved_in_quads(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["quads", "elements", "stores", "halves"]
    declared = [
        f"@group(0) @binding({i}) var<storage, read_write> {name}: array<{name}_word>;\n"
        for i, name in enumerate(names)
    ]
    body = (
        "quads_put(0u, halves_quad(0u) + quads_at(5u) + elements_at(0u)); stores_set(1u, stores_quad(0u).x);"
    )
    real = kernels._read
    text = "".join(declared) + body
    monkeypatch.setattr(kernels, "_read", lambda name: text if name == "moves" else real(name))
    kernel = kernels.load("moves")
    dtypes = dict.fromkeys(names, DType.float32) | {"halves": DType.float16}
    words = {name: f"alias {name}_word = vec2<u64>;" for name in names}
    text = kernels.source(kernels.load("moves", wide=True), dtypes, {})
    assert [name for name, word in words.items() if word in text] == ["quads"]
    assert "u64" not in kernels.source(kernel, dtypes, {})


def test_no_other_package_imports_it() -> None:
    others = [path for path in ROOT.rglob("*.py") if "software" not in path.relative_to(ROOT).parts]
    assert not [path for path in others for name in imports(path) if name.startswith(PACKAGE)]


# Every operator is planned for a software adapter with all features, and all its shader texts are made.
WITHOUT = """
import sys
if {absent}:
    sys.modules["pteron.compiler.software"] = None  # as if it were deleted
from pteron.compiler.ir.dispatch import HALF, SOFTWARE, SUBGROUP
from pteron.compiler.ir.extensions import DEVICE_PASSES
from pteron.compiler.plan.routes import ByName
from pteron.tools.verify.catalogue import CATALOGUE
from tests.support.operators.graphs import LiveEntry, texts_of

routes = 0
for entries in CATALOGUE.values():
    for entry in entries:
        for route in LiveEntry(entry, entry.dtypes[0], (SOFTWARE, SUBGROUP, HALF), ByName()).routes:
            texts_of(route.dispatches)
            routes += route.target == SOFTWARE
print(routes, sum(SOFTWARE in needs for _, needs in DEVICE_PASSES.values()))
"""


@pytest.mark.parametrize("absent", [False, True])
def test_every_operator_works_without_it(absent: bool) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT.format(absent=absent)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    routes, passes = map(int, done.stdout.split())
    assert (routes == 0, passes == 0) == (absent, absent)
