"""Compare the formulas of a method with live shapes."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

from pteron.api.method_info import IOInfo
from pteron.compiler.ir.sizes import Size
from pteron.compiler.ir.values import SymInt, Tensor
from pteron.compiler.plan.dynamic import find_sizes
from pteron.compiler.plan.method_sizes import given_integers, method_sizes
from pteron.compiler.plan.sweep import LiveGraph
from pteron.errors import InputError


def chosen(sizes: Sequence[int | Size], shape: Sequence[int]) -> dict[str, int]:
    """The numbers that a shape follows from, by name."""
    return {
        size.of.name: (given - size.plus) // size.times
        for size, given in zip(sizes, shape, strict=bool(sizes))
        if isinstance(size, Size)
    }


def wrong_sizes(live: LiveGraph, count: int = 8, seed: int = 0) -> Iterator[str]:
    """Where the formulas of any tensor differ from the sweep at random points."""
    found = find_sizes(live)
    derived = method_sizes(live, found)
    taken = {free.name for free in found.together}
    numbers, accepted = random.Random(seed), 0
    for _ in range(count):
        names = {free.name: numbers.choice(free.values) for free in found.together}
        shapes: dict[Any, Any] = {
            value: tuple(
                size.where(names[size.of.name]) if isinstance(size, Size) else size for size in sizes
            )
            for value, sizes in found.inputs.items()
        }
        for symint, name in given_integers(live, taken):
            shapes[symint.id] = names.setdefault(name, numbers.choice((0, 1, 3)))
        try:
            after = live.preview(shapes)
        except InputError:
            continue
        accepted += 1
        for value in live.graph.values:
            now = after[value.id]
            for dim, size in enumerate(now if isinstance(now, tuple) else (now,)):
                formula = derived.of(value)[dim] if derived.of(value) else None
                if formula is not None and formula.value(names) != size:
                    yield f"{value}[{dim}] is {size} at {names}, but {formula} is {formula.value(names)}"
    if not accepted:
        yield f"the program refuses {count} random points"


def unknown_outputs(live: LiveGraph) -> list[str]:
    """The sizes of outputs that have no formula, but do not depend on data either."""
    derived = method_sizes(live, find_sizes(live))
    return [
        f"{port.name}[{dim}]"
        for port in live.graph.outputs
        if isinstance(port.value, (Tensor, SymInt))
        for dim, formula in enumerate(derived.of(port.value))
        if formula is None and not (port.value.id in live.graph.counts and dim == 0)
    ]


def assert_formulas(
    inputs: Sequence[IOInfo], given: Sequence[Any], outputs: Sequence[IOInfo], made: Any
) -> None:
    """Check the texts of output sizes against the shapes of a call."""
    names: dict[str, Any] = {info.name: value for info, value in zip(inputs, given, strict=True)}
    for info, value in zip(inputs, given, strict=True):
        names |= chosen(info.sizes, getattr(value, "shape", ()))
    for info, output in zip(outputs, made, strict=True):
        for text, size in zip(info.formulas, getattr(output, "shape", ()), strict=bool(info.formulas)):
            assert text.startswith("<=") or eval(text, {}, dict(names)) == size, f"{info} for {output.shape}"
