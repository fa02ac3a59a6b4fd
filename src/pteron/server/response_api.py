"""The requests of /v1/responses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from pteron.server.field_names import SAMPLING
from pteron.server.requests import (
    ApiError,
    Request,
    boolean,
    check_names,
    integer,
    json_object,
    make_request,
    tool_options,
)
from pteron.server.response_form import ResponseForm
from pteron.server.response_store import ResponseStore
from pteron.server.responses import AnswerForm

# Unsupported fields, and the values without an effect.
_UNSUPPORTED: dict[str, tuple[Any, ...]] = {
    "background": (None, False),
    "include": (None, []),
    "truncation": (None, "disabled"),
    "reasoning": (None, {}),
    "conversation": (None,),
    "prompt": (None,),
    "max_tool_calls": (None,),
    "top_logprobs": (None, 0),
}
_OWN = {
    "model", "input", "instructions", "max_output_tokens", "parallel_tool_calls", "previous_response_id",
    "store", "stream", "stream_options", "text", "tool_choice", "tools",
}  # fmt: skip


class ResponseReader:
    """Reads requests. `previous_response_id` names a stored response."""

    def __init__(self, stored: ResponseStore) -> None:
        self._stored = stored

    def __call__(self, body: bytes) -> tuple[Request, Callable[[str], AnswerForm]]:
        fields = json_object(body)
        check_names(fields, _OWN | SAMPLING, _UNSUPPORTED)
        messages = [*self._earlier(fields), *_input(fields.get("input"))]
        instructions = fields.get("instructions")
        if instructions is not None and not isinstance(instructions, str):
            raise ApiError(400, "instructions must be a text", param="instructions")
        prompt = [{"role": "system", "content": instructions}, *messages] if instructions else messages
        request = self._request(fields, prompt)
        keep = fields.get("store") is None or boolean(fields, "store")
        store = self._stored.add if keep else None
        return request, partial(ResponseForm, details=_details(fields, keep), messages=messages, store=store)

    def _earlier(self, fields: Mapping[str, Any]) -> list[dict[str, Any]]:
        previous = fields.get("previous_response_id")
        if previous is None:
            return []
        return list(self._stored.get(str(previous), "previous_response_id").messages)

    @staticmethod
    def _request(fields: Mapping[str, Any], prompt: list[dict[str, Any]]) -> Request:
        """As a request of /v1/chat/completions, with its names."""
        chat = {name: fields.get(name) for name in ("model", "stream", *SAMPLING)}
        chat = {name: value for name, value in chat.items() if value is not None}
        chat["response_format"] = _response_format(fields.get("text"))
        tools = {
            "tools": _tools(fields.get("tools")),
            "tool_choice": _tool_choice(fields.get("tool_choice")),
            "parallel_tool_calls": fields.get("parallel_tool_calls"),
        }
        most = integer(fields, "max_output_tokens", 1)
        return make_request(chat, (prompt,), {"max_new_tokens": most, **tool_options(tools)})


def _input(given: Any) -> list[dict[str, Any]]:
    """The messages of the input, in the format of /v1/chat/completions."""
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    if not isinstance(given, list) or not given:
        raise ApiError(400, "input must be a text or a list of items", param="input")
    messages: list[dict[str, Any]] = []
    for place, item in enumerate(given):
        message = _item(item, f"input[{place}]")
        before = messages[-1] if messages else {}
        if message.get("tool_calls") and before.get("role") == "assistant":  # one turn: a text and its calls
            calls = [*before.get("tool_calls", []), *message["tool_calls"]]
            messages[-1] = {**before, "tool_calls": calls}
        else:
            messages.append(message)
    return messages


def _item(item: Any, where: str) -> dict[str, Any]:
    kind = item.get("type", "message") if isinstance(item, dict) else None
    if kind == "message" and isinstance(item.get("role"), str):
        role = "system" if item["role"] == "developer" else item["role"]
        return {"role": role, "content": _text(item.get("content"), f"{where}.content")}
    if kind == "function_call":
        function = {"name": item.get("name"), "arguments": item.get("arguments")}
        call = {"id": item.get("call_id"), "type": "function", "function": function}
        return {"role": "assistant", "content": "", "tool_calls": [call]}
    if kind == "function_call_output":
        output = _text(item.get("output"), f"{where}.output")
        return {"role": "tool", "tool_call_id": item.get("call_id"), "content": output}
    known = "a message with a role, a function_call or a function_call_output"
    raise ApiError(400, f"{where} must be {known}", param=where)


def _text(content: Any, where: str) -> str:
    """A text, or the texts of a list of parts."""
    if isinstance(content, str):
        return content
    texts = ("input_text", "output_text", "text")
    if isinstance(content, list) and all(isinstance(p, dict) and p.get("type") in texts for p in content):
        return "".join(str(part.get("text", "")) for part in content)
    raise ApiError(400, f"{where} must be text", param=where)


def _tools(given: Any) -> Any:
    """Here, the fields of a function are beside its type."""
    if not isinstance(given, list):
        return given
    return [_nested(tool) if isinstance(tool, dict) else tool for tool in given]


def _tool_choice(given: Any) -> Any:
    return _nested(given) if isinstance(given, dict) else given


def _nested(given: dict[str, Any]) -> dict[str, Any]:
    rest = {name: value for name, value in given.items() if name != "type"}
    return {"type": given.get("type"), "function": rest}


def _response_format(text: Any) -> Any:
    if text is None:
        return None
    form = text.get("format") if isinstance(text, dict) else "wrong"
    if not isinstance(form, dict | None):
        raise ApiError(400, "text must be an object with a format", param="text")
    if form is None or form.get("type") != "json_schema":
        return form
    return {
        "type": "json_schema",
        "json_schema": {"schema": form.get("schema"), "strict": form.get("strict")},
    }


def _details(fields: Mapping[str, Any], keep: bool) -> dict[str, Any]:
    """What a response repeats of its request."""
    text = fields.get("text") or {}
    return {
        "instructions": fields.get("instructions"),
        "max_output_tokens": fields.get("max_output_tokens"),
        "metadata": fields.get("metadata") or {},
        "parallel_tool_calls": fields.get("parallel_tool_calls") is not False,
        "previous_response_id": fields.get("previous_response_id"),
        "store": keep,
        "temperature": 1.0 if fields.get("temperature") is None else fields["temperature"],
        "text": {**text, "format": text.get("format") or {"type": "text"}},
        "tool_choice": fields.get("tool_choice") or "auto",
        "tools": fields.get("tools") or [],
        "top_p": 1.0 if fields.get("top_p") is None else fields["top_p"],
        "truncation": "disabled",
        "user": fields.get("user"),
    }
