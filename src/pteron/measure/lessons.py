"""The fastest routes at the shapes of a report, for nodes that have similar shapes.

A rule changes from one route to another at fixed sizes. A report measures where the change should be on one
device. A node uses the route that was the fastest at the most similar shapes of the same operator. Shapes are
similar if the ratios of their sizes are near 1. Without similar shapes, the order of the rule decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from math import log2
from typing import Any

from pteron.ir.values import Shape
from pteron.plan.routes import LiveShapes

FAR = 3  # log2 of the largest ratio of two sizes of similar shapes

_TENSOR = re.compile(r"(\w+)\[([^\]]*)\]")


@dataclass(frozen=True, slots=True)
class Lesson:
    """The fastest route of an operator at some shapes."""

    kind: str
    shapes: tuple[Shape, ...]
    route: str

    @classmethod
    def of(cls, key: str, live: LiveShapes, route: str) -> Lesson:
        return cls(kind_of_key(key), _compared(live), route)


class Lessons:
    """All lessons from one report."""

    def __init__(self, lessons: Iterable[Lesson] = ()) -> None:
        self._by_kind: dict[str, list[Lesson]] = {}
        for lesson in lessons:
            self._by_kind.setdefault(lesson.kind, []).append(lesson)

    def __bool__(self) -> bool:
        return bool(self._by_kind)

    def cover(self, key: str) -> bool:
        return kind_of_key(key) in self._by_kind

    def routes(self, key: str) -> set[str]:
        """All routes that may be used for a node."""
        return {lesson.route for lesson in self._by_kind.get(kind_of_key(key), ())}

    def nearest(self, key: str, live: LiveShapes) -> str | None:
        """The route at the most similar shapes; None if no shapes are similar."""
        shapes = _compared(live)
        found = [
            (_ratios(lesson.shapes, shapes), lesson) for lesson in self._by_kind.get(kind_of_key(key), ())
        ]
        near = [(sum(ratios), lesson.route) for ratios, lesson in found if max(ratios, default=0) <= FAR]
        return min(near, key=lambda pair: pair[0])[1] if near else None

    def as_json(self) -> list[dict[str, Any]]:
        return [
            {"kind": lesson.kind, "shapes": [list(shape) for shape in lesson.shapes], "route": lesson.route}
            for lessons in self._by_kind.values()
            for lesson in lessons
        ]

    @classmethod
    def from_json(cls, entries: Iterable[Mapping[str, Any]]) -> Lessons:
        return cls(
            Lesson(
                str(entry["kind"]),
                tuple(tuple(int(size) for size in shape) for shape in entry["shapes"]),
                str(entry["route"]),
            )
            for entry in entries
        )


def kind_of_key(key: str) -> str:
    """The operator and the dtypes of the matrices that it reads, from the key of a node.

    Vectors, such as biases, hardly change the time of a kernel. So a layer with a bias is of the same kind as
    a layer without one.
    """
    operator, _, reads = key.partition(" ")
    matrices = [dtype for dtype, sizes in _TENSOR.findall(reads) if "," in sizes]
    return " ".join((operator, *matrices))


def _compared(live: LiveShapes) -> tuple[Shape, ...]:
    return (*(shape for shape in live.reads if len(shape) > 1), *live.writes)


def _ratios(some: tuple[Shape, ...], others: tuple[Shape, ...]) -> list[float]:
    """|log2| of the ratio of each two sizes. A shape with fewer dimensions gets ones in front."""
    return [
        abs(log2(max(one, 1)) - log2(max(other, 1)))
        for mine, theirs in zip(some, others, strict=False)
        for one, other in zip_longest(reversed(mine), reversed(theirs), fillvalue=1)
    ]
