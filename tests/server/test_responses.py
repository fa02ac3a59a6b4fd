"""/v1/responses as the official client uses it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from pteron.llm import LanguageModel
from pteron.server.requests import ApiError
from pteron.server.response_store import ResponseStore
from tests.llm.test_grammar import Weather
from tests.llm.tool_models import HERMES, TOOLS, answering, arguments_of
from tests.server.running import client_of, running

FLAT: Any = [{"type": "function", **tool["function"]} for tool in TOOLS]
BY_NAME: Any = {"type": "function", "name": "weather"}


@pytest.fixture(scope="module")
def url(tool_llm: LanguageModel) -> Iterator[str]:
    with running(tool_llm, name="tiny") as url:
        yield url


@pytest.fixture(scope="module")
def client(url: str) -> openai.OpenAI:
    return client_of(url)


def test_text(client: openai.OpenAI, tool_llm: LanguageModel) -> None:
    want = tool_llm.generate([{"role": "user", "content": "hello"}], max_new_tokens=8)
    got = client.responses.create(model="tiny", input="hello", max_output_tokens=8, temperature=0)
    assert got.output_text == want.text
    assert got.status == ("incomplete" if want.finish_reason == "length" else "completed")
    assert got.usage and got.usage.output_tokens == want.stats.generated_tokens
    assert got.usage.input_tokens == want.stats.prompt_tokens
    assert client.responses.retrieve(got.id).output_text == want.text
    client.responses.delete(got.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(got.id)


def test_messages_and_instructions(client: openai.OpenAI, tool_llm: LanguageModel) -> None:
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello"}]
    want = tool_llm.generate(messages, max_new_tokens=5)
    parts: Any = [{"role": "user", "content": [{"type": "input_text", "text": "hello"}]}]
    got = client.responses.create(
        model="tiny", input=parts, instructions="be brief", max_output_tokens=5, temperature=0
    )
    assert got.output_text == want.text


def test_a_conversation_continues(client: openai.OpenAI, tool_llm: LanguageModel) -> None:
    options: Any = {"model": "tiny", "max_output_tokens": 4, "temperature": 0}
    first = client.responses.create(input="hello", instructions="only now", **options)
    second = client.responses.create(input="more", previous_response_id=first.id, **options)
    messages = [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": first.output_text},
        {"role": "user", "content": "more"},
    ]
    assert second.output_text == tool_llm.generate(messages, max_new_tokens=4).text
    assert second.previous_response_id == first.id
    unstored = client.responses.create(input="hello", store=False, **options)
    with pytest.raises(openai.NotFoundError, match="there is no response"):
        client.responses.create(input="more", previous_response_id=unstored.id, **options)


def test_events_in_order(client: openai.OpenAI) -> None:
    events: Any = list(
        client.responses.create(model="tiny", input="hello", max_output_tokens=6, temperature=0, stream=True)
    )
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type.removeprefix("response.") for event in events]
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    begin = ["created", "in_progress", "output_item.added", "content_part.added"]
    end = ["output_text.done", "content_part.done", "output_item.done", "incomplete"]
    assert kinds == begin + ["output_text.delta"] * len(deltas) + end
    assert deltas
    assert events[-1].response.output_text == "".join(deltas)


def test_events_of_a_call() -> None:
    call = '<tool_call>\n{"name": "clock", "arguments": {}}\n</tool_call>'
    with running(answering(f"Hm.{call}", HERMES), name="tiny") as url:
        events: Any = client_of(url).responses.create(
            model="tiny", input="Is it warm in Rome?", tools=FLAT, temperature=0, stream=True
        )
        kinds = [event.type.removeprefix("response.") for event in events]
    seen = list(dict.fromkeys(kinds))
    assert seen == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "completed",
    ]
    assert kinds.count("output_item.added") == 2


def test_a_call_and_its_output(client: openai.OpenAI) -> None:
    first: Any = client.responses.create(
        model="tiny", input="Is it warm?", tools=FLAT, tool_choice=BY_NAME, parallel_tool_calls=False
    )
    [call] = first.output
    assert (call.type, call.name) == ("function_call", "weather")
    arguments_of(call.arguments)
    output: Any = [{"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}]
    options: Any = {"model": "tiny", "tools": FLAT, "max_output_tokens": 3}
    assert client.responses.create(input=output, previous_response_id=first.id, **options).output
    history: Any = [{"role": "user", "content": "Is it warm?"}, call.model_dump(), *output]
    assert client.responses.create(input=history, **options).output


def test_a_schema(client: openai.OpenAI) -> None:
    got = client.responses.parse(model="tiny", input="hello", text_format=Weather, extra_body={"seed": 1})
    assert isinstance(got.output_parsed, Weather)


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"background": True}, "background"),
        ({"nonsense": 1}, "nonsense"),
        ({"reasoning": {"effort": "high"}}, "reasoning"),
        ({"truncation": "auto"}, "truncation"),
        ({"input": []}, "input"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0]"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content"),
        ({"tools": [{"type": "web_search"}]}, "tools"),
        ({"text": "json"}, "text"),
        ({"instructions": 3}, "instructions"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"store": "no"}, "store"),
    ],
)
def test_wrong_requests_are_refused(url: str, change: Any, param: str) -> None:
    answer = httpx.post(f"{url}/v1/responses", json={"model": "tiny", "input": "hello", **change}, timeout=60)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


def test_the_store_is_bounded() -> None:
    store = ResponseStore(most=3, characters=1000)
    for number in range(5):
        store.add({"id": str(number)}, [])
    assert store.get("4").body == {"id": "4"}
    with pytest.raises(ApiError):
        store.get("1")
    store.add({"id": "long", "text": "x" * 955}, [])
    with pytest.raises(ApiError):
        store.get("4")
    assert json.dumps(store.get("long").messages) == "[]"
    store.add({"id": "too long", "text": "x" * 2000}, [])
    with pytest.raises(ApiError):
        store.get("too long")
