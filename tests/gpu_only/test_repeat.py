"""`pteron verify --repeat`: results that differ from call to call, and the node where this begins."""

from __future__ import annotations

from typing import Any

import pytest

import pteron
from pteron.engine import executor
from pteron.tools.verify import repeat, repetition
from tests.support import DATA
from tests.support.cli import answer, pteron_cli

ATTENTION = DATA / "sdpa_dyn.pte"  # attention, and then copies of the KV caches
SIZES = [64, 33, 7, 3, 1]


def test_right_kernels_give_the_same_results() -> None:
    told = answer("verify", ATTENTION, "--repeat", 3)
    assert told["ok"] and told["count"] == 3 and not told["differences"]
    assert [shapes["input0"][1] for shapes in told["shapes"]] == SIZES
    assert (
        "5 live shapes: the same results, bit by bit" in pteron_cli("verify", ATTENTION, "--repeat", 2).stdout
    )


def test_the_node_that_differs_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy changes one bit where it finds poisoned memory."""
    healthy, right = executor.shader_text, "y[i] = x[i];"
    wrong = "y[i] = x[i] ^ select(0u, 1u, y[i] == 0xffffffffu);"

    def text(kernel: Any, dispatch: Any) -> str:
        made = healthy(kernel, dispatch)
        assert kernel.name != "copy" or right in made
        return made.replace(right, wrong) if kernel.name == "copy" else made

    monkeypatch.setattr(executor, "shader_text", text)
    report = repeat(ATTENTION, count=3)
    assert not report
    # At the largest size, another tensor was in all of this memory before.
    assert [d.shapes["input0"][1] for d in report.differences] == SIZES[1:]
    for difference in report.differences:  # nodes 4 and 5 copy further, and differ, too
        assert difference.where.startswith(("node 2, pteron.cast, kernel copy", "node 3, pteron.cast"))
        assert not difference.note
        assert difference.call == 2 and difference.first != difference.later
        assert abs(difference.first - difference.later) < 1e-5
    told = pteron_cli("verify", ATTENTION, "--repeat", 3, code=1).stdout
    assert "results differ. First: forward, node" in told


def test_a_difference_between_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """If every node alone gives the same, the report says so."""
    healthy = repetition._call
    calls = []

    def call(*given: Any) -> Any:
        calls.append(given)
        made = healthy(*given)
        if len(calls) == 3:
            made[0] = made[0][0], made[0][1].copy()
            made[0][1][0, -1, 0, 2] += 1
        return made

    monkeypatch.setattr(repetition, "_call", call)
    with pteron.load(ATTENTION) as program:
        report = repeat(program, count=3)
    (difference,) = report.differences
    assert difference.where.startswith("output") and difference.call == 3
    assert difference.note == repetition.NO_NODE
    assert difference.element == (0, 63, 0, 2)
