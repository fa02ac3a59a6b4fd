"""Answers of random weights that satisfy a schema, match an expression, or follow a grammar."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import numpy as np
import pytest
from pydantic import BaseModel, ConfigDict, Field

from pteron.errors import InputError
from pteron.llm import LanguageModel, Tokenizer
from pteron.llm.bounded import Bounds
from pteron.llm.candidates import Candidates
from pteron.llm.grammar import MOST_CHARACTERS, REMEMBERED, Grammars, Source, TooComplex
from pteron.llm.options import AnswerOptions
from tests.llm.reciter import reciter
from tests.llm.tiny_llama import tokenizer_json

WIDE = {"type": "object", "properties": {f"{i:x}": True for i in range(9000)}}  # takes more than 10 s


class Weather(BaseModel):
    model_config = ConfigDict(extra="forbid")

    rain: bool
    wind: Literal["north", "south"]
    degrees: Annotated[int, Field(ge=-40, le=60)]


@pytest.mark.parametrize("seed", range(5))
def test_answers_satisfy_their_schema(llm: LanguageModel, seed: int) -> None:
    got = llm.generate("a", schema=Weather.model_json_schema(), temperature=1, seed=seed)
    Weather.model_validate_json(got.text, strict=True)
    assert got.finish_reason == "stop"


@pytest.mark.parametrize("regex", ["[a-f]{3}-[0-9]{2}", "yes|no", "[^a-z]{5}🙂", " world( the)?!", "hello"])
def test_answers_match_their_expression(llm: LanguageModel, regex: str) -> None:
    for seed in range(3):
        got = llm.generate("a", regex=regex, temperature=1, seed=seed)
        assert re.fullmatch(regex, got.text)
        assert got.finish_reason == "stop"


def test_answers_follow_their_grammar(llm: LanguageModel) -> None:
    pair = 'start: "(" NUMBER "," (NUMBER | start) ")"\nNUMBER: /[0-9]{1,3}/'
    got = llm.generate("a", grammar=pair, temperature=1, seed=3, max_new_tokens=80)
    inner = re.compile(r"\([0-9]{1,3},(?:[0-9]{1,3}|x)\)")
    text = got.text
    while inner.search(text):
        text = inner.sub("x", text)
    assert text == "x"


def test_several_answers_have_their_own_place_in_the_grammar(llm: LanguageModel) -> None:
    made = llm.choices("a", 4, regex="[a-z]{4}[0-9]", temperature=5, seed=1)
    assert all(re.fullmatch("[a-z]{4}[0-9]", answer.text) for answer in made)
    assert len({answer.text for answer in made}) > 1


def test_the_text_ends_only_where_it_may(llm: LanguageModel) -> None:
    for seed in range(5):
        got = llm.generate("a", regex="[a-z]{4,}", temperature=2, seed=seed, max_new_tokens=30)
        assert re.fullmatch("[a-z]{4,}", got.text)
        endless = llm.generate(
            "a", regex="[a-z]{4,}", temperature=9, seed=seed, max_new_tokens=30, eos_token_id=[]
        )
        assert (len(endless.tokens), endless.finish_reason) == (30, "length")
        assert not llm.eos_ids & set(endless.tokens)


def test_other_end_tokens_end_a_complete_text() -> None:
    """The model would write abc, and end after it with a token of its own."""
    llm = reciter("abc!")
    other = llm.tokenizer.id_of("!")
    assert other is not None
    got = llm.generate("a", regex="[a-c]*", eos_token_id=other)
    assert (got.text, got.finish_reason) == ("abc", "stop")
    assert got.tokens[-1] == other


def test_a_grammar_of_all_texts_changes_nothing(llm: LanguageModel) -> None:
    want = llm.generate("hello world", max_new_tokens=20)
    got = llm.generate("hello world", max_new_tokens=20, regex="(?s:.)*")
    assert got.tokens == want.tokens


def test_a_complete_text_needs_no_end_token() -> None:
    llm = reciter('{"a": [1, 2]} and more')
    got = llm.generate("a", schema={"type": "object"})
    assert (got.text, got.finish_reason) == ('{"a": [1, 2]}', "stop")
    assert not llm.eos_ids & set(got.tokens)


def test_blanks_do_not_go_on_without_end() -> None:
    got = reciter("{" + " " * 100).generate("a", schema={"type": "object"}, max_new_tokens=10)
    assert got.text.startswith("{ ") and not got.text.startswith("{  ")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"schema": {"type": "nonsense"}}, "schema cannot be used: .*nonsense"),
        ({"schema": {"type": "array", "uniqueItems": True}}, "schema cannot be used: .*uniqueItems"),
        ({"schema": {"enum": []}}, "schema cannot be used: "),
        ({"schema": "text"}, "schema is str: expected a dictionary"),
        ({"schema": {"a": object()}}, "schema is not JSON"),
        ({"regex": "(a"}, "regex cannot be used: .*unclosed group"),
        ({"regex": 5}, "regex is int: expected a string"),
        ({"regex": "a" * (MOST_CHARACTERS + 1)}, f"at most {MOST_CHARACTERS}"),
        ({"grammar": "start: foo"}, "grammar cannot be used: .*foo"),
        ({"grammar": "start: " + "(" * 30_000 + '"a"' + ")" * 30_000}, "grammar .*"),
        ({"regex": "a", "grammar": 'start: "a"'}, "regex and grammar cannot be used together"),
    ],
)
def test_wrong_grammars_are_refused(llm: LanguageModel, options: Any, message: str) -> None:
    with pytest.raises(InputError, match=re.compile(message, re.DOTALL)):
        llm.stream("a", **options)
    assert llm.generate("a", regex="yes").text == "yes"


# -- limits -------------------------------------------------------------------------------------


@pytest.fixture()
def grammars() -> Iterator[Grammars]:
    tokenizer = Tokenizer(tokenizer_json())
    made = Grammars(tokenizer, [274], Bounds(seconds=2, nbytes=1 << 30))
    yield made
    made.close()
    tokenizer.close()


def test_a_grammar_that_takes_too_long_is_stopped(grammars: Grammars) -> None:
    wide = Source.of(AnswerOptions(schema=WIDE))
    assert wide
    with pytest.raises(InputError, match="schema took more than 2 s and was stopped: use a simpler schema"):
        grammars.compiled(wide)
    assert grammars.compiled(Source("regex", "a"))


def test_a_grammar_that_is_too_complex_for_its_text_is_stopped(grammars: Grammars) -> None:
    """An automaton of this expression remembers where each of the last 300 letters was an a or a b."""
    constraint = grammars.constraint(Source("regex", "(.*a.{200}|.*b.{300})*"), frozenset([274]))
    random = np.random.default_rng(0)
    letters = [grammars.tokenizer.id_of(letter) for letter in "abc"]
    with pytest.raises(TooComplex, match=r"regex is too complex for this text: [^<]*$"):
        for _ in range(3000):
            constraint.allow(Candidates.of(np.zeros(275)))
            constraint.consume(int(random.choice(letters)))


def test_the_newest_grammars_are_remembered(grammars: Grammars) -> None:
    first = grammars.compiled(Source("regex", "first"))
    for number in range(REMEMBERED - 1):
        grammars.compiled(Source("regex", f"{number}"))
    assert grammars.compiled(Source("regex", "first")) is first
    for number in range(REMEMBERED):
        grammars.compiled(Source("regex", f"{number}"))
    assert grammars.compiled(Source("regex", "first")) is not first


def test_columns_without_a_token_are_never_chosen(grammars: Grammars) -> None:
    constraint = grammars.constraint(Source("regex", "(?s:.)*"), frozenset([274]))
    left = constraint.allow(Candidates.of(np.zeros(400)))
    assert len(left) > 190  # a text does not begin inside a character
    assert left.tokens.max() == 274
