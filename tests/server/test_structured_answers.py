"""`response_format` as the official client sends it: random weights write valid JSON."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest

from pteron.llm import LanguageModel
from pteron.llm.bounded import Bounds
from pteron.llm.grammar import Grammars
from tests.llm.reciter import reciter
from tests.llm.test_grammar import WIDE, Weather
from tests.server.running import HELLO, client_of, idle, running, wait_until


@pytest.fixture(scope="module")
def client(llm: LanguageModel) -> Iterator[openai.OpenAI]:
    with running(llm, name="tiny") as url:
        yield client_of(url)


def json_schema(schema: Any) -> Any:
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}


@pytest.mark.parametrize("seed", range(3))
def test_the_clients_own_parser_reads_the_answer(client: openai.OpenAI, seed: int) -> None:
    got = client.chat.completions.parse(model="tiny", messages=HELLO, response_format=Weather, seed=seed)
    assert isinstance(got.choices[0].message.parsed, Weather)
    assert got.choices[0].finish_reason == "stop"


def test_in_a_stream(client: openai.OpenAI) -> None:
    schema = json_schema(Weather.model_json_schema())
    chunks = list(
        client.chat.completions.create(model="tiny", messages=HELLO, response_format=schema, stream=True)
    )
    Weather.model_validate_json("".join(chunk.choices[0].delta.content or "" for chunk in chunks))
    assert chunks[-1].choices[0].finish_reason == "stop"


def test_any_json_object() -> None:
    with running(reciter('{"a": [1, 2]} and more'), name="x") as url:
        extra = {"response_format": {"type": "json_object"}}
        got = client_of(url).completions.create(model="x", prompt="a", temperature=0, extra_body=extra)
    assert got.choices[0].text == '{"a": [1, 2]}'
    assert got.choices[0].finish_reason == "stop"


@pytest.mark.parametrize(
    ("response_format", "message"),
    [
        ({"type": "xml"}, "text, json_object or json_schema"),
        ("json", "text, json_object or json_schema"),
        ({"type": "json_schema"}, "schema must be an object"),
        (json_schema([]), "schema must be an object"),
        (json_schema({"type": "nonsense"}), "schema cannot be used: .*nonsense"),
        (json_schema({"type": "string", "pattern": "(a"}), "schema cannot be used: .*"),
    ],
)
def test_wrong_formats_are_refused(client: openai.OpenAI, response_format: Any, message: str) -> None:
    with pytest.raises(openai.BadRequestError, match=message):
        client.chat.completions.create(model="tiny", messages=HELLO, response_format=response_format)
    assert client.chat.completions.parse(model="tiny", messages=HELLO, response_format=Weather)


def test_a_schema_that_takes_too_long_delays_nobody(
    llm: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounded = Grammars(llm.tokenizer, llm.eos_ids, Bounds(seconds=3))
    monkeypatch.setattr(llm, "grammars", bounded)
    with running(llm, name="tiny") as url, ThreadPoolExecutor() as threads:
        client = client_of(url)
        ask = client.chat.completions.create
        assert client.chat.completions.parse(model="tiny", messages=HELLO, response_format=Weather)
        hostile = threads.submit(ask, model="tiny", messages=HELLO, response_format=json_schema(WIDE))
        wait_until(lambda: not idle(url))
        assert ask(model="tiny", messages=HELLO, max_tokens=2)
        assert not hostile.done()
        # A fast machine compiles it in time. Then the parser refuses it.
        with pytest.raises(openai.BadRequestError, match=r"schema (took more than 3 s|is too complex)"):
            hostile.result()
        assert client.chat.completions.parse(model="tiny", messages=HELLO, response_format=Weather)
    bounded.close()
