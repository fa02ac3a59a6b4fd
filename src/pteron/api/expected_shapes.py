"""The shapes that a program is expected to be called with: `load(expect=...)` plans them at load.

`Method.record_shapes` counts the shapes of real calls, and writes a file of them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TypeAlias

from pteron.api.method_info import IOInfo
from pteron.compiler.ir.live import Live
from pteron.compiler.ir.sizes import FreeSize, Size
from pteron.compiler.ir.values import Shape
from pteron.errors import InputError

# The shape of the only input that varies; or the shapes and integers of inputs, by name.
Point: TypeAlias = "Sequence[int] | Mapping[str, int | Sequence[int]]"
# A file of `record_shapes`; the points of `forward`, or of the only method; or the points of each method.
Expected: TypeAlias = "str | Path | Iterable[Point] | Mapping[str, Iterable[Point]]"
Points: TypeAlias = tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class ExpectedCalls:
    """The expected calls of a method. only: whether others are refused if they need a new plan."""

    points: Points = ()
    only: bool = False

    def __bool__(self) -> bool:
        return bool(self.points)


NOTHING_EXPECTED = ExpectedCalls()


def read_expected(given: Expected) -> dict[str, Points]:
    """The points of each method. Those of `""` are for `forward`, or for the only method."""
    if isinstance(given, (str, Path)):
        return _read(Path(given))
    if isinstance(given, Mapping):
        return {method: tuple(points) for method, points in given.items()}
    return {"": tuple(given)}


def _read(path: Path) -> dict[str, Points]:
    try:
        stored = json.loads(path.read_text())
        return {stored["method"]: tuple(dict(entry["inputs"]) for entry in stored["calls"])}
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is not a file that record_shapes() wrote: {error!r}") from None


def complete(point: Point, inputs: Sequence[IOInfo]) -> dict[str, Live]:
    """The shape of every input. Inputs that are not named follow the others, or are largest.

    An integer that is not named stays out: it counts as 0.
    """
    named = _by_name(point, inputs)
    known = {info.name for info in inputs if info.is_tensor or info.is_integer}
    if unknown := named.keys() - known:
        raise InputError(f"expect: there is no input {', '.join(sorted(unknown))}: {_listed(inputs)}")
    chosen: dict[FreeSize, int] = {}
    for info in inputs:
        if info.is_tensor and info.name in named:
            shape = named[info.name]
            if not isinstance(shape, tuple) or len(shape) != len(info.max_shape):
                raise InputError(f"expect: {info} was given {shape}: give {len(info.max_shape)} sizes")
            for size, number in zip(info.sizes, shape, strict=False):
                if isinstance(size, Size):
                    chosen[size.of] = (number - size.plus) // size.times
    found: dict[str, Live] = dict(named)
    for info in inputs:
        if info.is_tensor and info.name not in found:
            found[info.name] = _shape(info, chosen)
    return found


def _by_name(point: Point, inputs: Sequence[IOInfo]) -> dict[str, Live]:
    if isinstance(point, Mapping):
        return {name: live if isinstance(live, int) else tuple(live) for name, live in point.items()}
    varying = [info.name for info in inputs if info.dynamic_dims]
    if len(varying) != 1:
        raise InputError(
            f"expect: {tuple(point)} could be the shape of {' or '.join(varying) or 'no input'}: give the "
            f"shapes by name, such as {{{inputs[0].name if inputs else 'x'!r}: {tuple(point)}}}"
        )
    return {varying[0]: tuple(point)}


def _shape(info: IOInfo, chosen: Mapping[FreeSize, int]) -> Shape:
    if not info.sizes:
        return info.max_shape
    return tuple(
        size if isinstance(size, int) else size.where(chosen.get(size.of, size.of.values[-1]))
        for size in info.sizes
    )


def _listed(inputs: Sequence[IOInfo]) -> str:
    return f"the inputs are {', '.join(info.name for info in inputs) or 'none'}"


class ShapeRecord:
    """Counts the shapes of calls. `stop()` and the end of a `with` block write the file.

    The file is also written at each shape that has not been seen before, so little is lost in a crash.
    """

    def __init__(self, path: str | Path, method: str, stop: Callable[[ShapeRecord], None]) -> None:
        self._path = Path(path)
        self._method = method
        self._stop = stop
        self.calls: Counter[tuple[tuple[str, Live], ...]] = Counter()

    def count(self, live: Mapping[str, Live]) -> None:
        """Count a call."""
        key = tuple(live.items())
        self.calls[key] += 1
        if self.calls[key] == 1:
            self.write()

    def write(self) -> None:
        """Write the file, the most frequent shapes first."""
        entries = [{"count": count, "inputs": dict(key)} for key, count in self.calls.most_common()]
        self._path.write_text(json.dumps({"method": self._method, "calls": entries}, indent=1))

    def stop(self) -> None:
        """Count no more calls, and write the file."""
        self._stop(self)
        self.write()

    def __enter__(self) -> ShapeRecord:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
