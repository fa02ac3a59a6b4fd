"""Choose one of a node's routes: the first that fits, or the one that was measured to be faster."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from pteron.compiler.ir.dispatch import Route
from pteron.compiler.ir.values import Node, Shape, Tensor, numel


@dataclass(frozen=True, slots=True)
class LiveShapes:
    """The live shapes of the tensors that a node reads and writes."""

    reads: tuple[Shape, ...]
    writes: tuple[Shape, ...]

    @property
    def size(self) -> int:
        """The number of elements that the node writes."""
        return sum(map(numel, self.writes))


# Routes that compute wrong results on a device: their labels, and the operators that showed it.
WrongRoutes: TypeAlias = Mapping[str, Collection[str]]


class Choice(Protocol):
    """Overrides the order in which a rule lists its routes."""

    def keeps(self, key: str, route: str) -> bool:
        """Whether to compile a route that the rule's own order would never use."""

    def prefers(self, key: str, live: LiveShapes, fitting: Sequence[str]) -> str:
        """The route to use at these live shapes, out of those that fit."""


@dataclass(slots=True)
class ByName:
    """Keep every route, and use the one with the current name wherever it fits."""

    route: str = ""

    def keeps(self, key: str, route: str) -> bool:
        return True

    def prefers(self, key: str, live: LiveShapes, fitting: Sequence[str]) -> str:
        return self.route if self.route in fitting else fitting[0]


def route_key(node: Node) -> str:
    """The key of a stored choice: the operator, and dtypes and largest shapes of the tensors it reads."""
    reads = (f"{t.dtype}{list(t.max_shape)}" for t in node.reads if isinstance(t, Tensor))
    return " ".join((node.name, *reads))


def runnable_routes(
    routes: Iterable[Route], features: Collection[str], wrong: WrongRoutes | None = None
) -> list[Route]:
    """The routes that the device can run. Routes for another kind of device come last, then wrong ones."""
    runnable = [r for r in routes if all(need in features for need in _needs(r))]
    runnable.sort(key=lambda route: route.target is not None and route.target not in features)
    return sorted(runnable, key=lambda route: route.label in wrong) if wrong else runnable


def usable_routes(node: Node, runnable: list[Route], choice: Choice | None) -> list[Route]:
    """The routes that may be used: up to the first that always fits, and those that `choice` keeps."""
    always = next((i for i, route in enumerate(runnable) if route.when is None), len(runnable))
    usable, beyond = runnable[: always + 1], runnable[always + 1 :]
    if choice is None or not beyond:
        return usable
    key = route_key(node)
    return usable + [route for route in beyond if choice.keeps(key, route.name)]


def _needs(route: Route) -> tuple[str, ...]:
    return (route.needs,) if isinstance(route.needs, str) else route.needs or ()


def choose(
    node: Node,
    usable: list[Route],
    live: Callable[[], LiveShapes],
    choice: Choice | None,
    wrong: WrongRoutes | None = None,
) -> Route | None:
    """The route for the live shapes; None if none fits. A wrong one is used only if no other fits.

    `live` is called only if there is a choice.
    """
    fitting = [route for route in usable if route.when is not False]
    if wrong:
        fitting = [route for route in fitting if route.label not in wrong] or fitting
    if choice is None or len(fitting) < 2:
        return fitting[0] if fitting else None
    preferred = choice.prefers(route_key(node), live(), [route.name for route in fitting])
    return next(route for route in fitting if route.name == preferred)
