"""A case on disk: the program, the inputs of each call, and torch's results.

Beside `program.pte` lies `calls.json`: {"tolerance": t, "calls": [{"inputs": [...], "outputs": [...]}]},
where a value is an integer, or {"file", "dtype", "shape"} of raw little-endian bytes. Any runtime can
be held against it.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from tests.dynamic_shape.table import INTEGER, Case, Dim, Sizes
from tests.support.calls import Call
from tests.support.export import export

PROGRAM, CALLS = "program.pte", "calls.json"


@dataclass(frozen=True)
class Recording:
    """What a folder holds. Reading it needs no torch."""

    folder: Path

    @property
    def program(self) -> Path:
        return self.folder / PROGRAM

    @cached_property
    def _index(self) -> dict[str, Any]:
        index: dict[str, Any] = json.loads((self.folder / CALLS).read_text())
        return index

    @property
    def tolerance(self) -> float:
        return float(self._index["tolerance"])

    @cached_property
    def calls(self) -> list[Call]:
        return [
            Call(*([self._read(v) for v in call[k]] for k in ("inputs", "outputs")))
            for call in self._index["calls"]
        ]

    def _read(self, entry: Any) -> Any:
        if isinstance(entry, int):
            return entry
        return np.fromfile(self.folder / entry["file"], entry["dtype"]).reshape(entry["shape"])


def record(case: Case, folder: Path) -> Recording:
    """Export a case and run it in torch, call after call."""
    import torch

    model = make_model(case)
    reference = copy.deepcopy(model)  # tracing may touch the state that calls build on
    torch.manual_seed(0)
    program = export(model, make_inputs(model, case.largest), dynamic_shapes(case), **case.options)

    def calls() -> Iterator[Call]:
        for number, sizes in enumerate(case.live):
            torch.manual_seed(1 + number)
            inputs = make_inputs(reference, sizes)
            yield Call(inputs, run_reference(reference, inputs))

    return write(folder, program, calls(), case.tolerance)


def write(folder: Path, program: bytes, calls: Iterable[Call], tolerance: float) -> Recording:
    """Store a program and torch's results of calls, in order."""
    (folder / PROGRAM).write_bytes(program)
    entries = []
    for number, call in enumerate(calls):
        groups = {"inputs": call.inputs, "outputs": call.outputs}
        entries.append(
            {
                kind: [_write(folder, f"call{number}.{kind[:-1]}{i}.bin", v) for i, v in enumerate(values)]
                for kind, values in groups.items()
            }
        )
    (folder / CALLS).write_text(json.dumps({"tolerance": tolerance, "calls": entries}, indent=1))
    return Recording(folder)


def make_model(case: Case) -> Any:
    import torch

    from tests.dynamic_shape import models

    torch.manual_seed(0)
    return getattr(models, case.model)().eval()


def make_inputs(model: Any, sizes: Sizes) -> tuple[Any, ...]:
    inputs: tuple[Any, ...] = model.inputs(*(sizes if isinstance(sizes, tuple) else (sizes,)))
    return inputs


def run_reference(model: Any, inputs: tuple[Any, ...]) -> list[Any]:
    """torch's results, as a list of arrays and integers."""
    import torch

    with torch.no_grad():
        outputs = getattr(model, "reference", model)(*inputs)
    return list(outputs) if isinstance(outputs, tuple) else [outputs]


def dynamic_shapes(case: Case) -> Any:
    """The case's dimensions in torch's words; a name stands for one dimension wherever it appears."""
    import torch

    known: dict[str, Any] = {}

    def said(value: Any) -> Any:
        if isinstance(value, Dim):
            return known.setdefault(value.name, torch.export.Dim(value.name, min=value.low, max=value.high))
        if value is INTEGER:
            return torch.export.Dim.DYNAMIC
        return {d: said(dim) for d, dim in value.items()} if isinstance(value, dict) else value

    return None if case.dynamic is None else tuple(map(said, case.dynamic))


def _write(folder: Path, name: str, value: Any) -> Any:
    if isinstance(value, int):
        return value
    array = value.detach().contiguous().numpy()
    array.tofile(folder / name)
    return {"file": name, "dtype": array.dtype.str, "shape": list(array.shape)}
