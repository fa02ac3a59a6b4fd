"""What the catalogue lacks, in words that say which file wants what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache

from pteron.compiler.ir.dispatch import Route
from pteron.compiler.ops import find, registered
from pteron.compiler.ops import kernel as kernels
from pteron.compiler.plan.routes import ByName
from pteron.compiler.plan.sweep import plan
from pteron.tools.verify.catalogue import CATALOGUE, cases
from tests.support.operators.graphs import DEVICES, LiveEntry, is_integer_arithmetic, product_of

KERNELS = set(kernels.names())
RANDOM = {"random", "count_call"}  # their results cannot be predicted
FOLDER = "src/pteron/tools/verify/catalogue"


@cache
def routes_of_cases() -> list[Route]:
    graphs = [case.graph for case in cases()]
    return [r for graph in graphs for kind in DEVICES for r in plan(graph, kind, ByName()).routes[0]]


def kernels_of(route: Route) -> list[str]:
    return [dispatch.kernel for dispatch in route.dispatches]


def missing_entries(names: Iterable[str] | None = None) -> Iterator[str]:
    """By default of all operators."""
    for name in registered() if names is None else names:
        if name not in CATALOGUE and not is_integer_arithmetic(name):
            yield f"{name} has no entry: add one to {file_of(name)}"


def missing_cases(names: Iterable[str] | None = None) -> Iterator[str]:
    """By default of all operators.

    A route is a name and its last kernel: those before it prepare an operand.
    """
    used = {(route.name, kernels_of(route)[-1]) for route in routes_of_cases() if route.dispatches}
    for (route, kernel), name in _known_routes(CATALOGUE if names is None else names).items():
        if kernel not in RANDOM and (route, kernel) not in used:
            what = "" if route == "only" else f", route `{route}`,"
            yield f"kernel `{kernel}`{what} of {name} has no case: add one to {file_of(name)}"


def unused_kernels() -> Iterator[str]:
    used = {kernel for route in routes_of_cases() for kernel in kernels_of(route)}
    for kernel in sorted(KERNELS - RANDOM - used):
        yield f"kernel `{kernel}` has no case: no entry with a reference in {FOLDER} uses it"


def _known_routes(names: Iterable[str]) -> dict[tuple[str, str], str]:
    """The routes of these operators' entries, and an operator that has each."""
    return {
        (route.name, kernels_of(route)[-1]): name
        for name in names
        for entry, dtype, kind in product_of(CATALOGUE.get(name, []))
        for route in LiveEntry(entry, dtype, kind, ByName()).routes
        if route.dispatches
    }


def file_of(name: str) -> str:
    """The file that has the entries of this operator, or of the others in the module of its rule."""
    spec = find(name)
    assert spec is not None
    siblings = [other for other, its in registered().items() if its.rule.__module__ == spec.rule.__module__]
    files = Counter(
        entry.make.__module__.rpartition(".")[2]
        for other in ([name] if name in CATALOGUE else siblings)
        for entry in CATALOGUE.get(other, [])
    )
    return f"{FOLDER}/{files.most_common(1)[0][0]}.py" if files else f"a file of {FOLDER}"
