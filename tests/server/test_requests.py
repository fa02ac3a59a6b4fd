"""What bodies of requests mean, and which of them are refused. No model is needed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pteron.llm.closed_schema import closed
from pteron.server.requests import ApiError, parse_chat, parse_completion

HELLO = [{"role": "user", "content": "hello"}]


def refusal(parse: Any, **fields: Any) -> Any:
    with pytest.raises(ApiError) as caught:
        parse(json.dumps(fields).encode())
    assert caught.value.status == 400
    return caught.value.body["error"]


@pytest.mark.parametrize(
    ("name", "value", "guess"),
    [
        ("temperatur", 1, ": did you mean temperature?"),
        ("max_token", 5, ": did you mean max_tokens?"),
        ("guided_json", {"type": "object"}, ""),
        ("reasoning_effort", "high", ""),
        ("mirostat", 2, ""),
        ("x" * 5000, 1, ""),
    ],
)
def test_a_field_without_a_meaning_is_refused(name: str, value: Any, guess: str) -> None:
    error = refusal(parse_chat, messages=HELLO, **{name: value})
    assert error["message"] == f"{name[:100]} is not supported{guess}"
    assert (error["param"], error["code"]) == (name[:100], "unsupported_parameter")
    assert refusal(parse_completion, prompt="a", **{name: value})["code"] == "unsupported_parameter"


def test_fields_of_the_other_endpoint_are_refused() -> None:
    assert refusal(parse_chat, messages=HELLO, prompt="a")["param"] == "prompt"
    assert refusal(parse_completion, prompt="a", messages=HELLO)["param"] == "messages"


def test_fields_that_change_nothing_are_accepted() -> None:
    harmless = {"user": "u", "metadata": {"a": "b"}, "store": True, "cache_prompt": True, "mirostat": 0}
    nothing = {"functions": None, "reasoning_effort": "none", "modalities": ["text"], "tools": None}
    request = parse_chat(json.dumps({"messages": HELLO, **harmless, **nothing}).encode())
    assert request.prompts == (HELLO,)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (5, "messages[0].content must be text"),
        ([{"type": "image_url"}], "messages[0].content must be text, not image_url"),
        (
            [{"type": "text", "text": "a"}, {"type": "input_audio"}],
            "messages[0].content must be text, not input_audio",
        ),
        ([5], "messages[0].content must be text"),
    ],
)
def test_contents_that_are_no_text(content: Any, message: str) -> None:
    assert refusal(parse_chat, messages=[{"role": "user", "content": content}])["message"] == message


def test_numbers_out_of_range() -> None:
    error = refusal(parse_completion, prompt="a", max_tokens=0)
    assert error["message"] == "max_tokens must be an integer of at least 1"
    assert refusal(parse_completion, prompt="a", n=17)["message"] == "n must be an integer from 1 to 16"


def schema(of: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"of": of}}


def test_a_strict_schema_is_closed() -> None:
    """Also inside. What says itself which other properties it has stays open."""
    inner = {"type": "object", "properties": {}}
    shut = {**inner, "additionalProperties": False}
    given = schema({"anyOf": [inner, {"type": "array", "items": inner}]})
    wanted = {**schema({"anyOf": [shut, {"type": "array", "items": shut}]}), "additionalProperties": False}
    assert closed(given) == wanted
    assert given == schema({"anyOf": [inner, {"type": "array", "items": inner}]}), (
        "the caller's is not changed"
    )
    assert closed({**schema({}), "$defs": {"a": inner}})["$defs"] == {"a": shut}
    for stays in (
        {"type": "object"},
        {**inner, "additionalProperties": {"type": "string"}},
        {**inner, "patternProperties": {}},
        {**inner, "anyOf": [{"required": ["a"]}]},
        {"allOf": [inner, inner]},
        {"properties": {"allOf": [inner]}},
        True,
    ):
        assert closed({"items": stays}) == {"items": stays}  # type: ignore[dict-item]


@pytest.mark.parametrize("strict", [True, False, None])
def test_the_schema_of_an_answer(strict: bool | None) -> None:
    named = {"name": "x", "schema": schema({}), "strict": strict}
    fields = {"messages": HELLO, "response_format": {"type": "json_schema", "json_schema": named}}
    made: Any = parse_chat(json.dumps(fields).encode()).options["schema"]
    assert made == (closed(schema({})) if strict else schema({}))


def test_a_schema_that_is_nested_too_deeply() -> None:
    deep = b'{"properties":{"a":' * 400 + b"1" + b"}}" * 400
    body = (
        b'{"messages":[{"role":"user","content":"a"}],"response_format":{"type":"json_schema","json_schema":'
    )
    try:
        parse_chat(body + b'{"strict":true,"schema":' + deep + b"}}}")
    except ApiError as error:
        assert "nested too deeply" in str(error)
