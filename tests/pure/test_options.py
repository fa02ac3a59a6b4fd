"""The table of options: the types of Python and the page of the documents follow it."""

from __future__ import annotations

from dataclasses import fields

from pteron.llm.options import TABLE, AnswerOptions, Options, Sampling
from tests.support.option_table import PATH, with_table


def test_the_types_of_the_arguments_are_those_of_the_fields() -> None:
    declared = {f.name: f.type for kind in (Sampling, AnswerOptions) for f in fields(kind)}
    assert {name: hint.__forward_arg__ for name, hint in Options.__annotations__.items()} == declared


def test_every_option_of_the_table_is_explained() -> None:
    assert len(TABLE) > 15
    assert all(row.text.endswith(".") for row in TABLE.values())


def test_the_page_has_the_table() -> None:
    page = PATH.read_text("utf-8")
    assert page == with_table(page), "run `make docs`"
