"""Another process, which draws programs and computes each step by torch and by ExecuTorch's own runtime.

Both may end their process: a kernel aborts on arguments that it does not take, and an integer division traps.
So the process says what it does, and a new one goes on behind it.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from typing import Any

TORCH, EXECUTORCH = "torch", "ExecuTorch"
PRELOAD = [
    "executorch.extension.pybindings.portable_lib",
    "tests.differential.draw",
    "tests.differential.closeness",
]


@dataclass
class Checked:
    """What became of one step of one call."""

    step: int
    kernel: str
    agrees: list[str] = field(default_factory=list)  # references that the result agrees with
    differs: dict[str, str] = field(default_factory=dict)  # those that it differs from, and how
    refused: dict[str, str] = field(default_factory=dict)  # those that refuse the step, and why


class References:
    """Asks the other process. Starts a new one if it has ended."""

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(PRELOAD)
        self._process: Any = None
        self._line: Any = None

    def __enter__(self) -> References:
        return self

    def __exit__(self, *error: object) -> None:
        self._stop()

    def _start(self) -> None:
        here, there = self._context.Pipe()
        self._process = self._context.Process(target=_serve, args=(there,), daemon=True)
        self._process.start()
        there.close()
        self._line = here

    def _stop(self) -> None:
        if self._process is not None:
            self._line.close()
            self._process.join()
            self._process = None

    def _ask(self, *question: Any) -> tuple[Any, Any]:
        """The answer; or None, and what was being done when the process ended."""
        if self._process is None:
            self._start()
        self._line.send(question)
        doing = None
        try:
            while True:
                kind, answer = self._line.recv()
                if kind == "answer":
                    return answer, None
                if kind == "failed":
                    raise RuntimeError(answer)
                doing = answer
        except EOFError:
            self._stop()
            return None, doing or "a program"

    def draw(self, number: int) -> Any:
        """A record and the bounds of its values. None: torch ended the process."""
        return self._ask("draw", number)[0]

    def export(self, number: int) -> Any:
        """An `Exported` program, or why there is none."""
        answer, _ = self._ask("export", number)
        return answer or "a reference ended the process"

    def bounds(self, record: Any) -> Any:
        """The bounds of the values of a record. None: torch refuses it."""
        return self._ask("bounds", record)[0]

    def values(self, record: Any) -> Any:
        """Every value of a record at its first point, by torch. None: torch refuses it."""
        return self._ask("values", record)[0]

    def check(self, record: Any, values: dict[str, Any], after: dict[str, Any]) -> list[Checked]:
        """Compare every step. `values` are before the call and `after` those of the buffers after it."""
        skipped: list[tuple[int, str]] = []
        while True:
            answer, doing = self._ask("check", record, values, after, skipped)
            if answer is not None:
                return answer
            if not isinstance(doing, tuple) or doing in skipped:
                raise RuntimeError(f"the process of the references ended: {doing}")
            skipped.append(doing)


# -- the other process ---------------------------------------------------------------------------------


def _serve(line: Connection) -> None:
    """Answer questions until the other side closes the line."""
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 2)  # both runtimes write their reasons there
    import torch

    torch.set_num_threads(1)
    handlers = {"draw": _draw, "export": _export, "bounds": _bounds, "values": _values, "check": _check}
    with suppress(EOFError):
        while True:
            kind, *question = line.recv()
            try:
                answer = handlers[kind](line, *question)
            except Exception:  # a mistake of the test itself
                line.send(("failed", traceback.format_exc()))
                continue
            line.send(("answer", answer))


def _draw(line: Connection, number: int) -> Any:
    from tests.differential.draw import program

    record, drawing = program(number)
    return record, _bounds_of(record, drawing.env)


def _export(line: Connection, number: int) -> Any:
    from executorch.extension.pybindings.portable_lib import _load_for_executorch_from_buffer

    from tests.differential.through_export import exported, run_by_executorch

    made = exported(number)
    if not isinstance(made, str):
        with suppress(Exception):  # then torch is the only reference
            made.executorch = run_by_executorch(made, _load_for_executorch_from_buffer)
    return made


def _bounds(line: Connection, record: Any) -> Any:
    env = _computed(record)
    return env and _bounds_of(record, env)


def _values(line: Connection, record: Any) -> Any:
    env = _computed(record)
    return env and {name: at[0] for name, at in env.items()}


def _computed(record: Any) -> dict[str, list[Any]] | None:
    """Every value at every point, by torch. None: torch refuses the record."""
    from tests.differential.fills import tensor_of
    from tests.differential.kernels import kernel
    from tests.differential.record import resolved

    points = range(record.points)
    try:
        env = {name: [tensor_of(source, p) for p in points] for name, source in record.sources.items()}
        for step in record.steps:
            made = []
            for point in points:
                args = resolved(step.args, lambda name, p=point, env=env: env[name][p])
                made.append(kernel(step.kernel)(_copied(args), step.dtype))
            if any(len(results) != len(step.outputs) for results in made):
                return None
            env |= {name: [results[n] for results in made] for n, name in enumerate(step.outputs)}
    except Exception:
        return None
    return env


def _bounds_of(record: Any, env: dict[str, list[Any]]) -> dict[str, tuple[str, tuple[int, ...]]]:
    """The element type and the largest shape of each value that a step computes."""
    from tests.differential.direct import INT
    from tests.differential.record import largest

    bounds = {}
    for step in record.steps:
        for name in step.outputs:
            at = env[name]
            if isinstance(at[0], int):
                bounds[name] = (INT, ())
                continue
            shape = largest([list(value.shape) for value in at])
            bounds[name] = (str(at[0].dtype).removeprefix("torch."), _data_bound(step, env, shape))
    return bounds


def _data_bound(step: Any, env: dict[str, list[Any]], shape: tuple[int, ...]) -> tuple[int, ...]:
    """The largest shape of a result whose length depends on data."""
    operator = step.kernel.partition("::")[2].partition(".")[0]
    args = {name: env[arg[1:]] for name, arg in step.args.items() if isinstance(arg, str) and arg[1:] in env}
    if operator in ("nonzero", "masked_select"):
        return (max(value.numel() for value in args["self"]), *shape[1:])
    if operator == "repeat_interleave":
        return (4 * max(value.numel() for value in args["repeats"]),)
    if operator == "index" and len(masks := [a for a in step.args["indices"] if a]) == 1:
        mask = env[masks[0][1:]]
        if str(mask[0].dtype) == "torch.bool":
            return (max(value.numel() for value in mask), *shape[1:])
    return shape


def _check(
    line: Connection,
    record: Any,
    values: dict[str, Any],
    after: dict[str, Any],
    skipped: list[tuple[int, str]],
) -> list[Checked]:
    from tests.differential.kernels import kernel
    from tests.differential.record import resolved

    found = []
    for number, step in enumerate(record.steps):
        called = kernel(step.kernel)
        if step.kernel == "aten::sym_size.int":
            continue
        args = resolved(step.args, lambda name: values[name])
        got = [values[name] for name in step.outputs]
        changed = [after[name] for name in _changed(step)]
        checked = Checked(number, step.kernel)
        for reference, run in ((TORCH, _by_torch), (EXECUTORCH, _by_executorch)):
            if (number, reference) in skipped:
                checked.refused[reference] = "ends the process"
                continue
            line.send(("doing", (number, reference)))
            _compare(checked, reference, run, called, step, args, [*got, *changed])
        found.append(checked)
    return found


def _compare(
    checked: Checked, reference: str, run: Any, called: Any, step: Any, args: Any, got: list[Any]
) -> None:
    from tests.differential.closeness import difference

    try:
        want = run(called, step, _copied(args), got)
    except Exception as error:
        lines = str(error).strip().splitlines()
        checked.refused[reference] = (
            re.sub(r"-?\d+(\.\d+)?", "N", lines[0])[:160] if lines else type(error).__name__
        )
        return
    problem = difference(called, args, step.dtype, got, want)
    if problem and reference == TORCH:
        with suppress(RuntimeError, TypeError, ValueError):
            problem = difference(called, args, step.dtype, got, _in_float32(called, step, args, want))
    if problem:
        checked.differs[reference] = problem
    else:
        checked.agrees.append(reference)


def _changed(step: Any) -> list[str]:
    """The buffers that a kernel changes besides its results."""
    from tests.differential.kernels import changed_arguments

    return [step.args[name][1:] for name in changed_arguments(step.kernel, step.args)]


def _by_torch(called: Any, step: Any, args: Any, got: Any) -> list[Any]:
    from tests.differential.kernels import changed_arguments

    made = called(args, step.dtype)
    return [*made, *(args[name] for name in changed_arguments(step.kernel, step.args))]


def _in_float32(called: Any, step: Any, args: Any, want: list[Any]) -> list[Any]:
    """As on a GPU: other floats are computed as float32 and rounded once. See docs/known-differences.md."""
    import torch

    def as_float32(arg: Any) -> Any:
        if isinstance(arg, torch.Tensor) and arg.is_floating_point():
            return arg.float()
        return "float32" if isinstance(arg, str) and arg in ("float16", "bfloat16", "float64") else arg

    made = _by_torch(called, replace(step, dtype=as_float32(step.dtype)), _mapped(args, as_float32), want)
    return [value.to(like.dtype) for value, like in zip(made, want, strict=True)]


def _by_executorch(called: Any, step: Any, args: Any, got: Any) -> list[Any]:
    """The step as a program of its own, whose tensors have exactly the sizes of this call."""
    import torch
    from executorch.extension.pybindings.portable_lib import _load_for_executorch_from_buffer

    from tests.differential.direct import INT, written
    from tests.differential.kernels import changed_arguments
    from tests.differential.record import Record, Source, Step

    given: list[Any] = []
    sources: dict[str, Source] = {}

    def named(arg: Any) -> Any:
        if isinstance(arg, dict):
            return {name: named(item) for name, item in arg.items()}
        if isinstance(arg, list):
            return [named(item) for item in arg]
        if not isinstance(arg, torch.Tensor):
            return arg
        name = f"x{len(given)}"
        given.append(torch.empty(arg.shape, dtype=arg.dtype).copy_(arg))  # with ordinary strides
        sources[name] = Source("input", str(arg.dtype).removeprefix("torch."), [list(arg.shape)])
        return f"${name}"

    alone = Step(step.kernel, named(args), step.outputs, step.dtype)
    bounds = {
        name: (INT, ())
        if isinstance(value, int)
        else (str(value.dtype).removeprefix("torch."), tuple(value.shape))
        for name, value in zip(step.outputs, got, strict=False)
    }
    changed = changed_arguments(step.kernel, step.args)
    outputs = [*step.outputs, *(alone.args[name][1:] for name in changed)]
    data = written({"forward": (Record(sources, [alone]), bounds, outputs)})
    module = _load_for_executorch_from_buffer(data)
    return [
        value.clone() if isinstance(value, torch.Tensor) else value
        for value in module.run_method("forward", given)
    ]


def _copied(arg: Any) -> Any:
    import torch

    return _mapped(arg, lambda item: item.clone() if isinstance(item, torch.Tensor) else item)


def _mapped(arg: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(arg, dict):
        return {name: _mapped(item, change) for name, item in arg.items()}
    if isinstance(arg, list):
        return [_mapped(item, change) for item in arg]
    return change(arg)
