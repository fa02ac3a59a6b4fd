"""The cases of `pteron doctor --thorough` use every kernel, and every route of it, on each kind of device."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np

import pteron.ops
from pteron.ir.dispatch import Route
from pteron.ir.values import SymInt, Tensor
from pteron.plan.sweep import plan
from pteron.trust.case import CaseProgram
from pteron.trust.cases import CASES
from tests.support.operators import samples  # noqa: F401  gives every operator its samples
from tests.support.operators.sample import DEVICES, SAMPLES, EveryRoute, OneNodeGraph, product_of

KERNELS = {path.stem for path in (Path(pteron.ops.__file__).parent / "wgsl").glob("*.wgsl")}
RANDOM = {"random", "count_call"}  # their results cannot be predicted


@cache
def routes_of_cases() -> list[Route]:
    graphs = [CaseProgram(case).graph for case in CASES]
    return [r for graph in graphs for kind in DEVICES for r in plan(graph, kind, EveryRoute()).routes[0]]


def kernels_of(route: Route) -> list[str]:
    return [dispatch.kernel for dispatch in route.dispatches]


def test_every_kernel_has_a_case() -> None:
    used = {kernel for route in routes_of_cases() for kernel in kernels_of(route)}
    assert used == KERNELS - RANDOM


def test_every_route_of_a_kernel_has_a_case() -> None:
    """A route is a name and its last kernel: those before it prepare an operand."""
    used = {(route.name, kernels_of(route)[-1]) for route in routes_of_cases() if route.dispatches}
    known = {
        (route.name, kernels_of(route)[-1])
        for name, given in SAMPLES.items()
        for sample, dtype, kind in product_of(given)
        for route in OneNodeGraph(name, sample, dtype, kind, EveryRoute()).routes
        if route.dispatches
    }
    assert {pair for pair in known - used if pair[1] not in RANDOM} == set()


def test_every_route_fits_one_of_the_sizes() -> None:
    """Otherwise it would never run."""
    fitting: set[str] = set()
    for case in CASES:
        program = CaseProgram(case)
        for kind in DEVICES:
            live = plan(program.graph, kind, EveryRoute())
            for size in case.sizes:
                given = program.inputs(case.arguments(size))
                live.resize(
                    {
                        port.value.id: value.shape if isinstance(value, np.ndarray) else value
                        for port, value in zip(program.graph.inputs, given, strict=True)
                        if isinstance(port.value, (Tensor, SymInt))
                    }
                )
                routes = live._apply_rule(program.graph.nodes[0])[1]
                fitting |= {route.label for route in routes if route.when is not False}
    assert {route.label for route in routes_of_cases()} - fitting == set()
