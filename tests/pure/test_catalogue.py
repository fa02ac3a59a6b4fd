"""The catalogue has every operator, and a case for every route of every kernel."""

from __future__ import annotations

import numpy as np
import pytest

from pteron.compiler.ir.values import SymInt, Tensor
from pteron.compiler.plan.routes import ByName
from pteron.compiler.plan.sweep import plan
from pteron.tools.verify.catalogue import CATALOGUE, cases
from tests.support.operators import coverage
from tests.support.operators.coverage import missing_cases, missing_entries, routes_of_cases, unused_kernels
from tests.support.operators.graphs import DEVICES


def test_every_operator_has_an_entry() -> None:
    assert not list(missing_entries())


def test_every_kernel_and_route_has_a_case() -> None:
    assert not [*unused_kernels(), *missing_cases()]


def test_what_is_missing_names_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coverage, "routes_of_cases", list)
    assert list(missing_cases(["aten.bucketize.Tensor"])) == [
        "kernel `search` of aten.bucketize.Tensor has no case: "
        "add one to src/pteron/tools/verify/catalogue/reductions.py"
    ]
    monkeypatch.delitem(CATALOGUE, "aten.topk.default")
    assert list(missing_entries()) == [
        "aten.topk.default has no entry: add one to src/pteron/tools/verify/catalogue/reductions.py"
    ]


def test_every_route_fits_one_of_the_sizes() -> None:
    """Otherwise it would never run."""
    fitting: set[str] = set()
    for case in cases():
        graph = case.graph
        calls = [case.call(size)[0] for size in case.sizes]
        for kind in DEVICES:
            live = plan(graph, kind, ByName())
            for given in calls:
                live.sweep(
                    {
                        port.value.id: value.shape if isinstance(value, np.ndarray) else value
                        for port, value in zip(graph.inputs, given, strict=True)
                        if isinstance(port.value, (Tensor, SymInt))
                    }
                )
                routes = live._apply_rule(graph.nodes[0], live.current)[1]
                fitting |= {route.label for route in routes if route.when is not False}
    assert {route.label for route in routes_of_cases()} - fitting == set()
