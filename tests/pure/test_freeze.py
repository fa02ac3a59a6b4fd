"""Freezing: which live points a program has, what is refused, and what the files contain."""

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
from pteron.errors import InputError, UnsupportedError
from pteron.pte.file import ProgramFile
from pteron.web.freeze import browser_text, freeze
from pteron.web.live_points import MOST_POINTS, Integers, choose_axes, live_points
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


def points(graph: Graph, stated: Any = None) -> list[list[int]]:
    return [point["at"] for point in freeze(live(graph, features={GPU}), stated).header["points"]]


def test_an_integer_that_only_kernels_read_is_no_part_of_a_point() -> None:
    graph = cached()
    integers = Integers.of(live(graph, features={GPU}))
    assert [symint.name for symint in integers.moving] == ["n1"] and integers.planning == []
    frozen = freeze(live(graph, features={GPU}), {"v0": [[1], [1, 4], [2], [8]]})
    short, long = frozen.header["points"]
    assert (short["at"], long["at"]) == ([1], [4])
    (low, high) = (point["ranges"][0][1:3] for point in (short, long))
    assert (low, high) == ([0, 15], [0, 12]), "a longer input ends at an earlier position"
    assert frozen.header["states"] == [[frozen.header["states"][0][0], None]], "it begins with zeros"


def test_an_integer_that_changes_plans_is_refused_with_the_node_and_its_name() -> None:
    with pytest.raises(UnsupportedError) as error:
        points(sliced())
    text = str(error.value)
    assert "aten.slice_copy.Tensor (node 0) must be planned again for each value of the integer n1" in text
    assert f"more than {MOST_POINTS} plans" in text


def test_an_element_that_changes_plans_may_be_stated() -> None:
    s = Sketch()
    x, n = s.input(8, 4), s.input(1)
    start = s.graph.symint("start")
    s.graph.elements.append(Element(start, n, 0, 0))
    graph = s.finish(s.add("aten.slice_copy.Tensor", x, 0, 0, start, 1, shape=(8, 4)))
    with pytest.raises(UnsupportedError, match=r"each value of element 0 of v1.*--live 'v1\[0\]=0-15'"):
        points(graph)
    found = points(graph, {"v0": [[8], [4]], "v1": [[1]], "v1[0]": [[0, 3]]})
    assert [at[-1] for at in found] == [0, 3]
    with pytest.raises(InputError, match=r"names v1\[1\], but the inputs are v0, v1, v1\[0\]"):
        points(graph, {"v1[1]": [[0]]})


def test_its_values_may_be_stated() -> None:
    found = points(sliced(), {"v0": [[8], [4]], "n1": [[0, 3, 8]]})
    assert [at[-1] for at in found] == [0, 3, 8]


def test_sizes_may_be_stated() -> None:
    s = Sketch()
    x = s.input(6, 4)
    graph = s.finish(s.add("aten.sigmoid.default", x, shape=(6, 4)))
    assert points(graph, [1, 4, 6, 99]) == [[1, 1], [1, 4], [4, 1], [4, 4], [6, 1], [6, 4]]
    assert points(graph, {"v0": [[5], [2, 3]]}) == [[5, 2], [5, 3]]
    assert len(points(graph)) == 7 * 5, "a size of 0 is a size"
    with pytest.raises(InputError, match="none of the stated sizes"):
        points(graph, [99])


def test_stated_names_and_dimensions_must_be_those_of_the_inputs() -> None:
    s = Sketch()
    x = s.input(6, 4)
    graph = s.finish(s.add("aten.sigmoid.default", x, shape=(6, 4)))
    with pytest.raises(InputError, match="names nothing, but the inputs are v0"):
        points(graph, {"nothing": [[1], [4]]})
    with pytest.raises(InputError, match=r"has 1 lists of sizes, but v0 needs 2 \(at most \(6, 4\)\)"):
        points(graph, {"v0": [[1]]})


def test_too_many_shapes_ask_for_sizes() -> None:
    s = Sketch()
    x = s.input(400, 300)
    with pytest.raises(UnsupportedError, match=r"have 401 x 301 sizes.*--live") as error:
        points(s.finish(s.add("aten.sigmoid.default", x, shape=(400, 300))))
    assert "must be planned again" not in str(error.value)


def test_dimensions_that_must_be_equal_move_together() -> None:
    s = Sketch()
    x, y = s.input(6, 4), s.input(6, 4)
    graph = s.finish(s.add("aten.add.Tensor", x, y, 1, shape=(6, 4)))
    found = live(graph, features={GPU})
    shapes = [(point[x.id], point[y.id]) for point in live_points(found, Integers.of(found))]
    assert all(a == b for a, b in shapes) and len(shapes) == 7 * 5


def test_queries_keys_and_values_of_a_call_have_one_length() -> None:
    with ProgramFile.open(DATA / "sdpa_dyn.pte") as file:
        (axis,) = choose_axes(lower(file).plan(Target({GPU}))["forward"], None)
    assert len(axis.dims) == 3 and axis.sizes == tuple((size,) * 3 for size in range(65))


def test_equal_parameters_are_stored_once() -> None:
    frozen = freeze(live(cached(), features={GPU}), {"v0": [[1], [1, 4], [2], [8]]})
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
        lengths = struct.unpack("<4I", data[:16])
        assert 16 + sum(lengths) == len(data)
        header = json.loads(data[16 : 16 + lengths[0]])
        assert header["weights"] and len(header["weights"]) == len(described["weights"])
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
