"""Draw a random program from a number: the same number gives the same program."""

from __future__ import annotations

import random
from collections.abc import Sequence
from copy import copy
from typing import Any

from tests.differential.drawing import FILLS, Drawing, Impossible
from tests.differential.fills import DTYPES, FLOATS, INTEGERS
from tests.differential.hints import HINTS
from tests.differential.hints_of_language_models import HINTS as HINTS_OF_LANGUAGE_MODELS
from tests.differential.kernels import WITHOUT_EFFECT, Kernel, Parameter, all_kernels, kernel
from tests.differential.record import Record

TRIES = 30  # of arguments for one kernel
# Kernels whose result may have another element type, which only their output tells.
CAST = ("_to_copy", "_to_dim_order_copy", "full_like")
CREATED = ("full", "zeros", "ones", "scalar_tensor", "arange", "empty", "_empty_dim_order")
WHOLE = ("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not")


def program(number: int, fills: Sequence[str] = FILLS) -> tuple[Record, Drawing]:
    """The program with this number. Its first step has the kernel that comes next in the list."""
    rng = random.Random(number)
    drawing = Drawing(rng, fills)
    names = all_kernels()
    _add(drawing, names[number % len(names)])
    for _ in range(rng.choice([0, 0, 0, 1, 2, 3, 5])):
        _add(drawing, rng.choice(names))
    if rng.random() < 0.1:
        _add(drawing, "aten::copy_")
    record = drawing.record
    if not record.inputs:  # results have the kind of the inputs
        drawing.tensor(dtypes=("float32",), ranks=(1,), fill="normal")
        next(iter(record.sources.values())).kind = "input"
    order = list(range(drawing.points))
    rng.shuffle(order)
    record.calls = [*order, rng.choice(order)]
    if any(source.kind == "buffer" for source in record.sources.values()):
        record.methods = rng.choice([1, 2])
        record.calls += rng.choices(order, k=2)
    return record, drawing


def _add(drawing: Drawing, name: str) -> None:
    """Add a step, or nothing if no arguments are found."""
    called = kernel(name)
    for _ in range(TRIES):
        sources, steps = copy(drawing.record.sources), copy(drawing.record.steps)
        values = copy(drawing.env)
        try:
            args = _arguments(drawing, called)
            drawing.step(name, args, _result_dtype(drawing, called))
            return
        except Impossible:
            drawing.record.sources, drawing.record.steps, drawing.env = sources, steps, values


def _result_dtype(drawing: Drawing, called: Kernel) -> str | None:
    if called.operator in (*CAST, *CREATED):
        return drawing.any_dtype() if drawing.chance(0.6) or called.operator in CAST[:2] else None
    return None


def _arguments(drawing: Drawing, called: Kernel) -> dict[str, Any]:
    overload = called.name.partition("::")[2]
    if called.name in HINTS_OF_LANGUAGE_MODELS:
        return HINTS_OF_LANGUAGE_MODELS[called.name](drawing)
    hint = HINTS.get(overload) or HINTS.get(called.operator)
    return hint(drawing) if hint else _generic(drawing, called)


def _generic(drawing: Drawing, called: Kernel) -> dict[str, Any]:
    """Arguments by the types of the schema."""
    args: dict[str, Any] = {}
    dtypes = (*INTEGERS, "bool") if called.operator in WHOLE else DTYPES
    first = None
    for parameter in called.parameters:
        if parameter.type == "Tensor" and first is None:
            first = drawing.tensor(dtypes)
            args[parameter.name] = f"${first}"
    for parameter in called.parameters:
        if parameter.name in args or parameter.name in WITHOUT_EFFECT:
            continue
        if not parameter.required and drawing.chance(0.35):
            continue
        args[parameter.name] = _value(drawing, parameter, first, dtypes)
    return args


def _value(drawing: Drawing, parameter: Parameter, first: str | None, dtypes: tuple[str, ...]) -> Any:
    kind, rank = parameter.type, drawing.rank(first) if first else 0
    dtype = drawing.dtype(first) if first else drawing.any_dtype(dtypes)
    if kind.startswith("Optional") and drawing.chance(0.25):
        return None
    if parameter.name == "dtype":
        return drawing.any_dtype(FLOATS if dtype in FLOATS else dtypes)
    if "Tensor" in kind:
        return "$" + (drawing.partner(first, dtypes) if first else drawing.tensor(dtypes))
    if "List[int]" in kind:
        return drawing.some_dims(rank)
    if "number" in kind:
        return drawing.scalar(dtype)
    if "bool" in kind:
        return drawing.chance(0.5)
    if "float" in kind:
        return round(drawing.rng.gauss(0, 2), 3)
    if "str" in kind:
        return drawing.rng.choice(["floor", "trunc"])
    return drawing.dim(rank)
