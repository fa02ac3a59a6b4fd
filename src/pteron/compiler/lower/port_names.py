"""The names of a program's inputs and outputs. ExecuTorch does not store them; `pteron.export` does.

They are in a named data entry, as JSON: {"forward": {"inputs": ["x", "mode"], "outputs": ["output0"]}}.
Arguments that are texts are in it, too: {"texts": {"1": "fast"}}.
"""

from __future__ import annotations

from typing import Any

from pteron.compiler.lower.stored_json import stored_json
from pteron.errors import FormatError
from pteron.pte import schema
from pteron.pte.file import ProgramFile

ENTRY = "pteron.names.json"


def is_name(name: object) -> bool:
    """Whether a caller can use it as a keyword."""
    return isinstance(name, str) and name.isidentifier()


class PortNames:
    """The names of one method: those in the file, or else input0, input1, ..., output0, ..."""

    def __init__(self, file: ProgramFile, plan: schema.ExecutionPlan) -> None:
        stored = stored_json(file, ENTRY, plan.name)
        self._inputs = _checked(stored, "inputs", len(plan.inputs))
        self._outputs = _checked(stored, "outputs", len(plan.outputs))
        self._texts = stored.get("texts", {})
        if not isinstance(self._texts, dict) or not all(isinstance(t, str) for t in self._texts.values()):
            raise FormatError(f"program: texts in {ENTRY} must be texts by the number of the input")

    def input(self, number: int) -> str:
        return self._inputs[number]

    def output(self, number: int) -> str:
        return self._outputs[number]

    def text(self, number: int) -> str | None:
        """The text that the exporter made a constant of an input. None: it is no text."""
        text: str | None = self._texts.get(str(number))
        return text


def _checked(stored: dict[str, Any], kind: str, count: int) -> list[str]:
    names = stored.get(kind, [f"{kind[:-1]}{number}" for number in range(count)])
    if not isinstance(names, list) or not all(
        isinstance(name, str) and name.isidentifier() for name in names
    ):
        raise FormatError(f'program: {kind} in {ENTRY} must be a list of names, such as ["x"]')
    if len(names) != count or len(set(names)) != count:
        raise FormatError(f"program: {ENTRY} has {len(set(names))} different {kind}, expected {count}")
    return names
