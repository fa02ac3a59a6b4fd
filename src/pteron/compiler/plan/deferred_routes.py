"""Routes that are compiled while calls already run. Until then, a node uses another of its routes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TypeAlias

from pteron.compiler.ir.dispatch import Route

RouteKey: TypeAlias = tuple[int, str]  # the form of a node (see `LiveGraph.form`), and the name of a route


class DeferredRoutes:
    """The routes that cannot be used yet, and those that could not be compiled."""

    def __init__(self) -> None:
        self._errors: dict[RouteKey, Exception | None] = {}  # None: not compiled yet
        self._wanted: dict[RouteKey, None] = {}  # routes that a plan has asked for, in order

    def add(self, key: RouteKey) -> None:
        self._errors[key] = None

    def lacks(self, key: RouteKey) -> bool:
        """Whether a plan must do without a route that it would use. Raises the error of its compilation."""
        if key not in self._errors:
            return False
        error = self._errors[key]
        if error is not None:
            raise error.with_traceback(None)  # else every call would make it longer
        self._wanted[key] = None
        return True

    def ready(self, form: int, routes: Iterable[Route]) -> list[Route]:
        return [route for route in routes if (form, route.name) not in self._errors]

    def next(self) -> RouteKey | None:
        """The route to compile next: one that a plan has asked for, if there is any."""
        missing = [key for key, error in self._errors.items() if error is None]
        wanted = [key for key in missing if key in self._wanted]
        return next(iter(wanted or missing), None)

    def compiled(self, key: RouteKey) -> bool:
        """Note that a route can be used. Returns whether a plan has done without it."""
        del self._errors[key]
        return key in self._wanted

    def failed(self, key: RouteKey, error: Exception) -> bool:
        """Note that a route cannot be compiled. Returns whether a plan has done without it."""
        self._errors[key] = error
        return key in self._wanted

    @property
    def is_empty(self) -> bool:
        """Whether all routes can be used."""
        return not self._errors

    @property
    def error(self) -> Exception | None:
        """The first error of a compilation."""
        return next((error for error in self._errors.values() if error is not None), None)


def needed_first(routes: Sequence[Route], wrong: Collection[str]) -> Sequence[Route]:
    """The routes without which a node cannot run: one that fits every live shape; all if there is none.

    wrong: the labels of routes with wrong results on the device.
    """
    always = [route for route in routes if route.when is None and route.label not in wrong]
    return always[:1] or routes
