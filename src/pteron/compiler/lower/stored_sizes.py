"""The sizes that a method's inputs may have. ExecuTorch stores only the largest; `pteron.export` stores all.

They are in a named data entry, as JSON:

{"forward": {"free": [[0, 8, 1]], "names": ["half"], "inputs": [[[0, 2, 0], 4], null]}}

A free size is a number that a call chooses: its smallest and largest value and its step. The size of a
dimension is a number, or [free size, times, plus]: here input 0 has 2 * half rows of 4. Null is not a tensor.
The names are those of the export. Files of before have none.
"""

from __future__ import annotations

from typing import Any

from pteron.compiler.ir.sizes import FreeSize, Size, Sizes, letters
from pteron.compiler.ir.values import Shape
from pteron.compiler.lower.stored_json import stored_json
from pteron.errors import FormatError
from pteron.pte import schema
from pteron.pte.file import ProgramFile

ENTRY = "pteron.sizes.json"


class StoredSizes:
    """The sizes of one method's inputs. A file of another exporter has none."""

    def __init__(self, file: ProgramFile, plan: schema.ExecutionPlan) -> None:
        stored = stored_json(file, ENTRY, plan.name)
        self._inputs: list[Any] | None = None
        if stored:
            inputs, free = stored.get("inputs"), stored.get("free", ())
            _check(_is_list(inputs, len(plan.inputs)), f"inputs must be a list of {len(plan.inputs)}")
            _check(isinstance(free, list) and all(_are_integers(item, 3) for item in free), "bad free sizes")
            self._inputs = inputs
            self._names = _names(stored.get("names"), len(free))
            self._free = [self._made(number, *item) for number, item in enumerate(free)]

    def _made(self, number: int, low: int, high: int, step: int) -> FreeSize:
        _check(step > 0 and 0 <= low <= high, f"free size {number} has the range {low}, {high}, {step}")
        values = range(low + -low % step, high + 1, step)
        _check(bool(values), f"free size {number} has no values")
        assert self._inputs is not None
        uses = {
            (size[1], size[2])
            for sizes in self._inputs
            if isinstance(sizes, list)
            for size in sizes
            if _are_integers(size, 3) and size[0] == number
        }
        _check(all(times > 0 for times, _ in uses), "a size has a factor below 1")
        return FreeSize(values, tuple(sorted(uses)), self._names[number])

    def input(self, number: int, largest: Shape) -> Sizes | None:
        """The sizes of an input tensor; None: they are not stored."""
        if self._inputs is None:
            return None
        stored = self._inputs[number]
        _check(_is_list(stored, len(largest)), f"input {number} must have {len(largest)} sizes")
        return tuple(self._size(size, most) for size, most in zip(stored, largest, strict=True))

    def _size(self, stored: Any, most: int) -> int | Size:
        if _are_integers(stored, 3):
            free, times, plus = stored
            _check(0 <= free < len(self._free), f"there is no free size {free}")
            size = Size(self._free[free], times, plus)
            values = size.values
            _check(values[0] >= 0 and most - values.step < values[-1] <= most, f"{stored} is not {most}")
            return size
        _check(stored == most, f"a size is {stored}, but the program has {most}")
        return most


def _names(stored: Any, count: int) -> list[str]:
    """The names of free sizes. Those that have none get letters."""
    names = stored if stored is not None else [""] * count
    _check(_is_list(names, count) and all(isinstance(name, str) for name in names), "bad names")
    unnamed = letters(names)
    made = [name if name.isidentifier() else next(unnamed) for name in names]
    _check(len(set(made)) == count, "two free sizes have one name")
    return made


def _check(condition: bool, message: str) -> None:
    if not condition:
        raise FormatError(f"program: {ENTRY}: {message}")


def _is_list(value: Any, count: int) -> bool:
    return isinstance(value, list) and len(value) == count


def _are_integers(value: Any, count: int) -> bool:
    return _is_list(value, count) and all(type(item) is int and abs(item) < 2**63 for item in value)
