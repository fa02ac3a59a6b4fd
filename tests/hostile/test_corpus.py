"""Files that once brought other errors than ours. Each is answered, or refused in words."""

from __future__ import annotations

from pathlib import Path

import pytest

import pteron
from pteron.errors import PteronError
from pteron.pte.file import ProgramFile
from pteron.tools.inspect.inspect import inspect_methods

CORPUS = Path(__file__).parent / "corpus"


@pytest.mark.parametrize("path", sorted(CORPUS.iterdir()), ids=lambda path: path.name)
def test_a_past_finding_is_refused_in_words(path: Path) -> None:
    try:
        report = pteron.check(path)
    except PteronError as error:
        assert str(error)
    else:
        assert report.findings


@pytest.mark.parametrize("path", sorted(CORPUS.iterdir()), ids=lambda path: path.name)
def test_a_past_finding_can_be_inspected(path: Path) -> None:
    with ProgramFile.open(path) as file:
        assert any(method.problems for method in inspect_methods(file, file.method_names))


def test_the_message_names_the_argument_and_what_came() -> None:
    with pytest.raises(PteronError, match=r"^aten\.\S+ \(delegate 0, operator 0\): `\w+` must be a tensor, "):
        pteron.check(CORPUS / "AttributeError-ops-elementwise.pte")
