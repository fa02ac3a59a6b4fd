"""Freezing: which cases a program has, what is refused, and what the files contain."""

from __future__ import annotations

import gzip
import json
import struct
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from pteron.compiler.ir.dispatch import GPU
from pteron.compiler.ir.values import Element, Graph
from pteron.compiler.pipeline import Target, lower
from pteron.errors import UnsupportedError
from pteron.pte.file import ProgramFile
from pteron.web.freeze import browser_text, freeze
from pteron.web.program_files import write_program
from pteron.web.variants import VARIANTS
from tests.support import DATA
from tests.support.sketch import Sketch, live


def sliced() -> Graph:
    """x[:n]: the integer decides a size."""
    s = Sketch()
    x, n = s.input(8, 4), s.integer()
    return s.finish(s.add("aten.slice_copy.Tensor", x, 0, 0, n, 1, shape=(8, 4)))


def cached() -> Graph:
    """A cache that is written at a position, which only the kernel reads."""
    s = Sketch()
    x, at, cache = s.input(1, 4, 2, 8), s.integer(), s.constant(1, 16, 2, 8)
    s.graph.states.append(cache)
    s.node("update_cache.default", [x, cache, at, None])
    return s.finish(s.add("aten.sigmoid.default", x, shape=(1, 4, 2, 8)))


def header(graph: Graph) -> dict[str, Any]:
    return freeze(live(graph, features={GPU})).header


def test_plans_do_not_depend_on_an_integer_that_only_kernels_read() -> None:
    found = header(cached())
    (integer,) = found["integers"]
    assert integer == {"name": "n1", "element": None, "planning": False}
    low, high = next(case["ranges"][0][1:3] for case in found["cases"] if "ranges" in case)
    assert low == 0 and high == [[-1, 0], [16]], "a longer input ends at an earlier position"
    assert found["states"] == [[found["states"][0][0], None]], "it begins with zeros"


def test_an_integer_that_changes_plans_is_in_their_formulas() -> None:
    found = header(sliced())
    (integer,) = found["integers"]
    assert integer["planning"] and len(found["cases"]) <= 40


def test_an_element_that_changes_plans_is_read_from_its_input() -> None:
    s = Sketch()
    x, n = s.input(8, 4), s.input(1)
    start = s.graph.symint("start")
    s.graph.elements.append(Element(start, n, 0, 0))
    graph = s.finish(s.add("aten.slice_copy.Tensor", x, 0, 0, start, 1, shape=(8, 4)))
    assert header(graph)["integers"] == [{"name": "v1[0]", "element": [1, 0, 0], "planning": True}]


def test_many_sizes_need_few_cases() -> None:
    s = Sketch()
    x = s.input(400, 300)
    found = header(s.finish(s.add("aten.sigmoid.default", x, shape=(400, 300))))
    assert [(size["name"], size["high"]) for size in found["sizes"]] == [("n", 400), ("m", 300)]
    assert len(found["cases"]) <= 8


def test_a_rule_that_needs_a_case_for_each_size_is_refused_by_name() -> None:
    s = Sketch()
    x = s.input(400, 300)
    mean = s.add("aten.mean.dim", x, (1,), False, None, shape=(400,))
    with pytest.raises(UnsupportedError, match=r"aten\.mean\.dim \(node 0\) must be planned again .*--bound"):
        header(s.finish(mean))


def test_dimensions_that_must_be_equal_have_one_name() -> None:
    with ProgramFile.open(DATA / "sdpa_dyn.pte") as file:
        found = freeze(lower(file).plan(Target({GPU}))["forward"]).header
    assert found["sizes"] == [{"name": "n", "low": 0, "high": 64, "step": 1}]
    assert [port["sizes"][1] for port in found["inputs"]] == [[[1, 0]], [[1, 0]], [[1, 0]], 64, 64]


def test_equal_parameters_are_stored_once() -> None:
    frozen = freeze(live(cached(), features={GPU}))
    blocks = frozen.header["blocks"]
    stored = [frozen.params[a:b] for a, b in pairwise(blocks)]
    assert len(set(stored)) == len(stored) > 0


def test_the_files(tmp_path: Path) -> None:
    described = write_program(DATA / "emb_dyn.pte", tmp_path, shard_nbytes=64)
    assert json.loads((tmp_path / "model.json").read_text()) == json.loads(json.dumps(described))
    shards = described["shards"]
    assert len(shards) > 1 and {shard["nbytes"] for shard in shards[:-1]} == {64}
    total = sum((tmp_path / shard["file"]).stat().st_size for shard in shards)
    assert total == sum(nbytes for _, nbytes in described["weights"])
    for variant in described["variants"]:
        data = gzip.decompress((tmp_path / variant["plan"]["file"]).read_bytes())
        lengths = struct.unpack("<2I", data[:8])
        assert 8 + sum(lengths) == len(data)
        found = json.loads(data[8 : 8 + lengths[0]])
        assert found["weights"] and len(found["weights"]) == len(described["weights"])
    before = {path.name for path in tmp_path.iterdir()}
    write_program(DATA / "emb_dyn.pte", tmp_path, shard_nbytes=128)
    assert before - {path.name for path in tmp_path.iterdir()}, "files of the earlier program are removed"


def test_a_variant_with_the_kernels_of_a_simpler_one_is_not_written(tmp_path: Path) -> None:
    described = write_program(DATA / "dyn_rms.pte", tmp_path)
    names = [variant["name"] for variant in described["variants"]]
    assert "full" not in names and names[-1] == "gpu"
    assert [variant.name for variant in VARIANTS] == ["software", "full", "gpu"]


def test_browsers_get_the_line_that_they_require() -> None:
    assert browser_text("subgroupAdd(x)").startswith("enable subgroups;\n")
    assert browser_text("fn main() {}") == "fn main() {}"
