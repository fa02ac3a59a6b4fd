"""One pipeline: what `inspect`, `check` and `view` show is the graph that a load for the same device runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pteron.api.loading import load_file
from pteron.compiler import passes
from pteron.compiler.ir.dispatch import GPU, HALF
from pteron.compiler.ir.values import Graph
from pteron.compiler.pipeline import GraphOptions, Target
from pteron.pte.file import ProgramFile
from pteron.tools.inspect.check import DryDevice
from pteron.tools.inspect.inspect import inspect_method
from pteron.tools.viewer.scene import Scene
from tests.support import DATA

PROGRAM = DATA / "embedder_one_text.pte"


@pytest.fixture(autouse=True)
def a_pass_for_some_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    def mark(graph: Graph) -> Graph:
        return replace(graph, nodes=[replace(node, origin="for half") for node in graph.nodes])

    monkeypatch.setitem(passes.DEVICE_PASSES, "mark", (mark, (HALF,)))  # type: ignore[misc]


def described(graph: Graph) -> list[tuple[str, str]]:
    return [(node.name, node.origin) for node in graph.nodes]


@pytest.mark.parametrize("fuse", [None, (), ("mark",)], ids=str)
@pytest.mark.parametrize("features", [(), (GPU,), (GPU, HALF)], ids=str)
def test_the_graph_that_is_shown_is_the_one_that_is_loaded(features: tuple[str, ...], fuse: Any) -> None:
    options, target = GraphOptions(fuse), Target(features)
    with ProgramFile.open(PROGRAM) as file:
        loaded = described(load_file(file, DryDevice(frozenset(features)), fuse=fuse).method("forward").graph)
        shown = inspect_method(file, "forward", {}, options=options, target=target).nodes
        assert [(node.operator, node.origin) for node in shown] == loaded
        if fuse != ("mark",):
            assert described(Scene(file, "forward", target=target, fused=fuse is None).graph) == loaded
    assert ({origin for _, origin in loaded} == {"for half"}) == (HALF in features and fuse != ())
    fused = 30 if GPU in features else 36
    assert len(loaded) == (fused if fuse is None else 40)
