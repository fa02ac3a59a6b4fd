"""A program as a small record that can be stored as JSON, run by torch, and written as a `.pte` file.

A value has a name: `x0` for what a program is given, `t0` or `t0.1` for what a step computes. An argument
refers to a value by `$x0`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

Shape = tuple[int, ...]


@dataclass
class Source:
    """A tensor that no step computes. `shapes` has one shape for each live point of the program.

    `kind` is input, constant or buffer. A buffer keeps its contents from call to call.
    """

    kind: str
    dtype: str
    shapes: list[list[int]]
    fill: str = "normal"
    seed: int = 0
    values: list[list[Any]] | None = None  # the elements at each point, in place of `fill`

    @property
    def bound(self) -> Shape:
        return largest(self.shapes)


@dataclass
class Step:
    """The call of a kernel. `dtype` is the type of the result where no argument tells it."""

    kernel: str
    args: dict[str, Any]
    outputs: list[str]
    dtype: str | None = None


@dataclass
class Record:
    """A program. The first of its live points has the largest sizes. `calls` are points, in order.

    With two methods, both do the same on the same buffers, and calls take turns.
    """

    sources: dict[str, Source] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    calls: list[int] = field(default_factory=lambda: [0])
    note: str = ""
    methods: int = 1

    @property
    def points(self) -> int:
        return max((len(source.shapes) for source in self.sources.values()), default=1)

    @property
    def inputs(self) -> list[str]:
        return [name for name, source in self.sources.items() if source.kind == "input"]

    @property
    def results(self) -> list[str]:
        """The values that no step reads."""
        read = {name for step in self.steps for name in names_in(step.args)}
        return [name for step in self.steps for name in step.outputs if name not in read]

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Record:
        raw = json.loads(text)
        sources = {name: Source(**source) for name, source in raw["sources"].items()}
        steps = [Step(**step) for step in raw["steps"]]
        return cls(sources, steps, raw["calls"], raw["note"], raw.get("methods", 1))


def largest(shapes: list[list[int]]) -> Shape:
    return tuple(max(sizes) for sizes in zip(*shapes, strict=True))


def names_in(arg: Any) -> Iterator[str]:
    """The values that an argument refers to."""
    if isinstance(arg, dict):
        arg = list(arg.values())
    if isinstance(arg, list):
        for item in arg:
            yield from names_in(item)
    elif isinstance(arg, str) and arg.startswith("$"):
        yield arg[1:]


def resolved(arg: Any, value: Callable[[str], Any]) -> Any:
    """The argument with every reference replaced."""
    if isinstance(arg, dict):
        return {name: resolved(item, value) for name, item in arg.items()}
    if isinstance(arg, list):
        return [resolved(item, value) for item in arg]
    return value(arg[1:]) if isinstance(arg, str) and arg.startswith("$") else arg
