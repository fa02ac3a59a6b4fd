"""The answers to the page's questions."""

from __future__ import annotations

import base64
import io
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pteron.api.loading import load
from pteron.engine.devices.recording import RecordingDevice
from pteron.errors import InputError
from pteron.tools.inspect.inspect import inspect_method, open_file
from pteron.tools.viewer.scene import KINDS
from pteron.tools.viewer.viewer import Question, Viewer
from tests.view.programs import BLOCKS, LONGEST, WIDTH, blocks

LENGTH = "input0[1] = input1[1]"


@pytest.fixture(scope="module")
def viewer(program: Path) -> Iterator[Viewer]:
    with Viewer([program]) as viewer:
        yield viewer


def ask(viewer: Viewer, what: str, **question: Any) -> Any:
    return viewer.answers[what](Question.of(question))


# -- the graph -------------------------------------------------------------------------------------


def test_the_graph_is_whole(viewer: Viewer) -> None:
    for fused in (True, False):
        graph = ask(viewer, "graph", fused=fused)
        nodes = range(len(graph["nodes"]))
        written: set[Any] = set()
        for source, target, value in graph["edges"]:
            assert source in nodes or source in ("i0", "i1")
            assert target in nodes or target == "o0"
            assert source not in nodes or value in graph["nodes"][source]["writes"]
            assert target not in nodes or value in graph["nodes"][target]["reads"]
            written.add(target)
        assert "o0" in written


def test_equal_blocks_are_groups(viewer: Viewer) -> None:
    for fused in (True, False):
        graph = ask(viewer, "graph", fused=fused)
        names = [group["name"] for group in graph["groups"]]
        assert names[: BLOCKS + 1] == [
            f"{BLOCKS} equal blocks",
            *(f"block {i + 1} of {BLOCKS}" for i in range(BLOCKS)),
        ]
        sizes = defaultdict(int)
        for node in graph["nodes"]:
            sizes[node["group"]] += node["family"] == "product"
        assert [sizes[group] for group in range(1, BLOCKS + 1)] == [2] * BLOCKS


def test_what_was_fused(viewer: Viewer) -> None:
    """Every node of the file is in exactly one node of the fused graph."""
    fused, unfused = ask(viewer, "graph"), ask(viewer, "graph", fused=False)
    assert len(fused["nodes"]) < len(unfused["nodes"])
    found: list[str] = []
    for index in range(len(fused["nodes"])):
        node = ask(viewer, "node", node=index)
        found += [source["origin"] for source in node["fused_from"]] or [node["origin"]]
    wanted = [ask(viewer, "node", node=i, fused=False)["origin"] for i in range(len(unfused["nodes"]))]
    assert sorted(found) == sorted(wanted)


# -- sizes -----------------------------------------------------------------------------------------


def test_one_control_for_tied_sizes(viewer: Viewer) -> None:
    controls = ask(viewer, "graph")["controls"]
    size = {"low": 1, "high": LONGEST, "step": 1, "value": LONGEST, "size": True}
    assert controls == [{"name": LENGTH, **size}]


def test_live_shapes_are_those_of_inspect(viewer: Viewer, program: Path) -> None:
    for length in (5, LONGEST, 1, 5):
        live = ask(viewer, "live", sizes={LENGTH: length}, kind="portable")
        with open_file(program) as file:
            shapes = {"input0": (1, length, WIDTH), "input1": (1, length, 1)}
            info = inspect_method(file, "forward", shapes)
        graph = ask(viewer, "graph")
        for index, node in enumerate(info.nodes):
            assert live["routes"][index] == node.route
            assert live["grids"][index] == [list(d.grid) for d in node.dispatches]
            for value in graph["nodes"][index]["writes"]:
                name = graph["values"][value]["name"]
                shape = node.outputs[name]
                assert live["values"][value] == (list(shape) if isinstance(shape, tuple) else shape)


def test_a_refused_size_changes_nothing(viewer: Viewer) -> None:
    before = ask(viewer, "live", sizes={LENGTH: 3})
    for sizes, message in (
        ({LENGTH: LONGEST + 1}, "expected 1 to"),
        ({"other": 1}, "there is no size 'other'"),
        ({LENGTH: "3"}, "expected int"),
    ):
        with pytest.raises(InputError, match=message):
            ask(viewer, "live", sizes=sizes)
    assert ask(viewer, "live", sizes={LENGTH: 3}) == before


# -- nodes -----------------------------------------------------------------------------------------


def test_kernels_are_those_that_run(viewer: Viewer, program: Path) -> None:
    device = RecordingDevice()
    with load(program, device=device) as loaded:
        loaded.method("forward")
        texts = set(device.pipelines)
    live = ask(viewer, "live", sizes={LENGTH: 7})
    for index, grids in enumerate(live["grids"]):
        node = ask(viewer, "node", node=index, sizes={LENGTH: 7})
        assert [d["grid"] for d in node["dispatches"]] == grids
        assert {d["text"] for d in node["dispatches"]} <= texts


def test_one_route_is_chosen_and_each_has_a_reason(viewer: Viewer) -> None:
    reasons = defaultdict(set)
    for kind in KINDS:
        live = ask(viewer, "live", kind=kind)
        for index, route in enumerate(live["routes"]):
            routes = ask(viewer, "node", node=index, kind=kind)["routes"]
            assert [r["name"] for r in routes if r["chosen"]] == [route or "none"]
            reasons[kind].update(r["why"] for r in routes)
    missing = "needs subgroup of 8, which this kind of device does not have"
    assert missing in reasons["portable"]
    assert missing not in reasons["software adapter"]
    assert any("written for a" in why for why in reasons["GPU with subgroups and f16"])


def test_a_constant(viewer: Viewer) -> None:
    graph = ask(viewer, "graph")
    weights = {tuple(p.shape): p.detach().numpy() for p in blocks().blocks[0].parameters()}
    for number, value in enumerate(graph["values"]):
        if value["kind"] == "constant" and value["shape"] == [2 * WIDTH, WIDTH]:
            found = ask(viewer, "constant", value=number)["statistics"]
            break
    weight = weights[2 * WIDTH, WIDTH]
    assert found["count"] == weight.size == sum(found["histogram"])
    assert np.isclose(found["mean"], weight.mean(), atol=1e-6)
    assert found["min"] == weight.min() and found["max"] == weight.max()


# -- memory ----------------------------------------------------------------------------------------


def test_tensors_share_buffers_at_different_times(viewer: Viewer) -> None:
    memory = ask(viewer, "memory")
    assert sum(memory["buffers"]) == memory["activations"] < memory["unshared"]
    by_buffer = defaultdict(list)
    for tensor in memory["tensors"]:
        assert tensor["nbytes"] <= memory["buffers"][tensor["buffer"]]
        by_buffer[tensor["buffer"]].append((tensor["first"], tensor["last"]))
    for spans in by_buffer.values():
        spans.sort()
        assert all(last < first for (_, last), (first, _) in pairwise(spans))
    for node, needed in enumerate(memory["needed"]):
        used = [t["nbytes"] for t in memory["tensors"] if t["first"] <= node <= t["last"]]
        assert needed == sum(used) <= memory["activations"]


# -- on a device -----------------------------------------------------------------------------------


@pytest.mark.usefixtures("device")
def test_values_and_times(program: Path) -> None:
    import torch

    with Viewer([program]) as viewer:
        x = np.random.default_rng(0).standard_normal((1, 9, WIDTH)).astype(np.float32)
        mask = np.ones((1, 9, 1), np.float32)
        saved = io.BytesIO()
        np.savez(saved, input0=x, input1=mask)
        assert viewer.give(0, "input0", saved.getvalue()) == {"input0": [1, 9, WIDTH], "input1": [1, 9, 1]}

        found = ask(viewer, "run", kind="this device")
        graph = ask(viewer, "graph", kind="this device")
        wanted = blocks()(torch.from_numpy(x), torch.from_numpy(mask)).detach().numpy()
        output = graph["outputs"][0]["value"]
        assert found["first_not_finite"] is None
        assert np.isclose(found["values"][output]["max"], wanted.max(), rtol=1e-4)
        tensor = ask(viewer, "tensor", kind="this device", value=output)
        shown = np.frombuffer(_decoded(tensor["slice"]["numbers"]), "<f4").reshape(tensor["slice"]["size"])
        np.testing.assert_allclose(shown, wanted[0], rtol=1e-4, atol=1e-6)
        views = [
            n for n in graph["nodes"] if n["free"] and graph["values"][n["writes"][0]]["kind"] == "tensor"
        ]
        assert views and all(node["writes"][0] in found["values"] for node in views)

        x[0, 2, 5] = np.inf
        np.save(saved := io.BytesIO(), x)
        viewer.give(0, "input0", saved.getvalue())
        bad = ask(viewer, "run", kind="this device")["first_not_finite"]
        assert graph["nodes"][bad]["reads"][0] == graph["inputs"][0]["value"]

        viewer.take_back(0)
        times = ask(viewer, "profile", kind="this device", sizes={LENGTH: 5}, repeat=1)
        running = {i for i, node in enumerate(graph["nodes"]) if not node["free"]}
        assert {node["index"] for node in times["nodes"]} == running
        with pytest.raises(InputError, match=r"not a readable \.npy or \.npz"):
            viewer.give(0, "input0", b"no array")


def _decoded(text: str) -> bytes:
    return base64.b64decode(text)
