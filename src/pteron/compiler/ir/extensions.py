"""Packages that add kernels for one kind of device. No other package imports them, and all work without them.

A rule describes what it computes as a record, and asks `more_routes(record)` for the routes that extensions
have for it. An extension also registers its folder of kernels, and passes for devices with some features.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection
from importlib import import_module
from importlib.util import find_spec
from typing import Any, TypeVar

from pteron.compiler.ir.values import Graph

PACKAGES = ("pteron.compiler.software",)

P = TypeVar("P")
Maker = Callable[[P], list[Any]]

_MAKERS: dict[type, list[Maker[Any]]] = defaultdict(list)
KERNEL_FOLDERS: list[str] = []  # packages that have a folder `wgsl`
DEVICE_PASSES: dict[str, tuple[Callable[[Graph], Graph], Collection[str]]] = {}  # and the features they need


def load() -> None:
    """Import the extensions that are there. They register what they add."""
    for name in PACKAGES:
        if find_spec(name):
            import_module(name)


def extra_routes(record: type[P]) -> Callable[[Maker[P]], Maker[P]]:
    """Register a function of such records. It returns routes, or for products candidates in their order."""

    def register(make: Maker[P]) -> Maker[P]:
        _MAKERS[record].append(make)
        return make

    return register


def more_routes(record: object) -> list[Any]:
    """What extensions add for this record."""
    return [route for make in _MAKERS[type(record)] for route in make(record)]
