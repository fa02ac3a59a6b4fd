"""The declarative catalogue: suites of cases, each with its inputs, its expectation and its tolerance."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import pteron
from pteron.gpu.device import Device
from tests.conformance.agreement import disagreement
from tests.exporting import remember_rope_patterns
from tests.ops.rules import poison

_PACKAGE = "executorch.backends.webgpu.test.op_tests"
_STORED = {"float32": "<f4", "int32": "<i4", "int64": "<i8", "int8": "<i1", "bool": "?"}


def suite_names() -> list[str]:
    """In the catalogue's order. Read from its text: importing it takes torch and seconds."""
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or spec.origin is None:
        return []
    text = (Path(spec.origin).parent / "cases.py").read_text("utf-8")
    return re.findall(r'^@register_op_test\("(\w+)"\)', text, re.MULTILINE)


def cases_of(suite: str) -> list[Any]:
    """All but the few that the catalogue itself leaves out for their size."""
    from executorch.backends.webgpu.test.op_tests import cases  # noqa: F401  registers the suites
    from executorch.backends.webgpu.test.op_tests.test_suite import op_test_registry

    return [case for case in op_test_registry[suite].cases if not case.heavy]


def check_cases(suite: str, cases: list[Any], device: Device, folder: Path) -> list[str]:
    """Have the wheel export each case with its expectation, run it, and say what disagrees."""
    from executorch.backends.webgpu.test.op_tests import generate_op_tests as wheel

    remember_rope_patterns()
    return [
        f"{suite}/{case.name}: {problem}"
        for case in cases
        for problem in _problems(
            wheel.generate_case(suite, wheel.op_test_registry[suite], case, str(folder)), device, folder
        )
    ]


def _problems(entries: list[dict[str, Any]], device: Device, folder: Path) -> Iterator[str]:
    """One entry per output; they share a program and its inputs."""
    first = entries[0]
    inputs = [_read(folder, file) for file in first["inputs"]]
    try:
        with pteron.load(folder / first["pte"], device=device) as program:
            method = program.method()
            poison(method)
            outputs = method.execute(inputs)
    except pteron.PteronError as error:
        yield str(error)
        return
    for entry in entries:
        golden = entry["golden"]
        got = outputs[golden["output_index"]]
        if golden["dtype"] == "int64":  # the catalogue writes down integers of either width as this
            got = got.astype(np.int64)
        if problem := disagreement(got, _read(folder, golden), entry["atol"], entry["rtol"]):
            yield f"output {golden['output_index']}: {problem}"


def _read(folder: Path, file: dict[str, Any]) -> Any:
    return np.fromfile(folder / file["path"], _STORED[file["dtype"]]).reshape(file["shape"])
