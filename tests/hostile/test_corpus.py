"""Files that once brought other errors than ours. Each is answered, or refused in words."""

from __future__ import annotations

from pathlib import Path

import pytest

import pteron
from pteron.errors import PteronError

CORPUS = Path(__file__).parent / "corpus"


@pytest.mark.parametrize("path", sorted(CORPUS.iterdir()), ids=lambda path: path.name)
def test_a_past_finding_is_refused_in_words(path: Path) -> None:
    try:
        report = pteron.check(path)
    except PteronError as error:
        assert str(error)
    else:
        assert report.findings


def test_the_message_names_the_argument_and_what_came() -> None:
    with pytest.raises(PteronError, match=r"^aten\.\S+ \(delegate 0, operator 0\): `\w+` must be a tensor, "):
        pteron.check(CORPUS / "AttributeError-ops-elementwise.pte")
