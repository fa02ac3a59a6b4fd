"""Tool calls as the official client and langchain make them: random weights write valid calls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import httpx
import openai
import pydantic
import pytest
from langchain_openai import ChatOpenAI

from pteron.llm import LanguageModel
from tests.llm.tool_models import HERMES, QUESTION, TOOLS, answering, arguments_of
from tests.server.running import client_of, running

MESSAGES: Any = QUESTION
BY_NAME: Any = {"type": "function", "function": {"name": "weather"}}


@pytest.fixture(scope="module")
def url(tool_llm: LanguageModel) -> Iterator[str]:
    with running(tool_llm, name="tiny", parallel=2, queue=64) as url:
        yield url


@pytest.fixture(scope="module")
def client(url: str) -> openai.OpenAI:
    return client_of(url)


@pytest.mark.parametrize("seed", range(3))
def test_a_call_and_its_result(client: openai.OpenAI, seed: int) -> None:
    ask = client.chat.completions.create
    first: Any = ask(model="tiny", messages=MESSAGES, tools=TOOLS, tool_choice=BY_NAME, seed=seed)
    choice = first.choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content is None
    [call] = choice.message.tool_calls
    assert (call.type, call.function.name) == ("function", "weather")
    arguments_of(call.function.arguments)
    more = [choice.message, {"role": "tool", "tool_call_id": call.id, "content": "sunny"}]
    second: Any = ask(model="tiny", messages=[*MESSAGES, *more], tools=TOOLS, max_tokens=5)
    assert second.choices[0].finish_reason in ("length", "stop", "tool_calls")


def test_in_a_stream_the_parts_make_the_same_call(client: openai.OpenAI) -> None:
    options: Any = {"messages": MESSAGES, "tools": TOOLS, "tool_choice": BY_NAME, "seed": 3}
    whole: Any = client.chat.completions.create(model="tiny", **options)
    chunks: Any = list(client.chat.completions.create(model="tiny", stream=True, **options))
    calls: dict[int, tuple[str, str]] = {}
    for chunk in chunks:
        for part in chunk.choices[0].delta.tool_calls or []:
            if part.index not in calls:
                assert part.id and part.type == "function"
                calls[part.index] = (part.function.name, "")
            name, arguments = calls[part.index]
            calls[part.index] = (name, arguments + part.function.arguments)
    made = [(call.function.name, call.function.arguments) for call in whole.choices[0].message.tool_calls]
    assert list(calls.values()) == made
    assert chunks[-1].choices[0].finish_reason == "tool_calls"
    assert len(chunks) > len(calls) + 3  # the arguments came in parts


def test_the_clients_own_stream_and_parser(client: openai.OpenAI) -> None:
    tool: Any = openai.pydantic_function_tool(Forecast, name="weather")
    with client.chat.completions.stream(
        model="tiny", messages=MESSAGES, tools=[tool], tool_choice=BY_NAME, seed=1
    ) as stream:
        done = [event for event in stream if event.type == "tool_calls.function.arguments.done"]
    assert isinstance(done[0].parsed_arguments, Forecast)


def test_text_and_then_a_call() -> None:
    text = 'Let me see.<tool_call>\n{"name": "clock", "arguments": {}}\n</tool_call>'
    with running(answering(text, HERMES), name="tiny") as url:
        ask = client_of(url).chat.completions.create
        got: Any = ask(model="tiny", messages=MESSAGES, tools=TOOLS, temperature=0)
        message = got.choices[0].message
        assert (message.content, message.tool_calls[0].function.name) == ("Let me see.", "clock")
        chunks: Any = ask(model="tiny", messages=MESSAGES, tools=TOOLS, temperature=0, stream=True)
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "Let me see."


@pytest.mark.parametrize(
    ("change", "param", "message"),
    [
        ({"tools": [{"type": "custom"}]}, "tools", r"tools\[0\] must be an object with the type function"),
        ({"tools": 3}, "tools", "tools must be a list"),
        ({"tool_choice": "maybe"}, "tool_choice", "must be none, auto, required"),
        ({"tool_choice": {"type": "function", "function": {"name": "wind"}}}, "tool_choice", "names 'wind'"),
        ({"parallel_tool_calls": "no"}, "parallel_tool_calls", "must be true or false"),
        ({"messages": [*MESSAGES, {"role": "tool", "content": "x"}]}, "messages", "tool_call_id"),
        ({"functions": [{"name": "f"}]}, "functions", "functions is not supported"),
    ],
)
def test_wrong_requests_are_refused(url: str, change: Any, param: str, message: str) -> None:
    body = {"messages": MESSAGES, "tools": TOOLS, "max_tokens": 1, **change}
    answer = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=60)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, param)
    assert message.replace("\\", "") in error["message"]


class Forecast(pydantic.BaseModel):
    """The weather of a city."""

    city: Literal["Rome", "Oslo"]
    days: Literal[1, 2, 3]


def chat_model(url: str, **options: Any) -> Any:
    return ChatOpenAI(base_url=f"{url}/v1", api_key="none", model="tiny", max_retries=0, **options)


def test_langchain_calls_tools(url: str) -> None:
    bound = chat_model(url, seed=1).bind_tools([Forecast], tool_choice="Forecast", strict=True)
    [call] = bound.invoke("Is it warm?").tool_calls
    assert call["name"] == "Forecast"
    assert Forecast(**call["args"])
    parts = list(bound.stream("Is it warm?"))
    joined = parts[0]
    for part in parts[1:]:
        joined += part
    assert Forecast(**joined.tool_calls[0]["args"])


@pytest.mark.parametrize("method", ["function_calling", "json_schema"])
def test_langchain_reads_structured_output(url: str, method: str) -> None:
    structured = chat_model(url, seed=2).with_structured_output(Forecast, method=method, strict=True)
    assert isinstance(structured.invoke("Is it warm?"), Forecast)
