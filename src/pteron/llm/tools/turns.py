"""Messages with tool calls and results, as a chat template takes them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pteron.llm.tools.call_formats import Family
from pteron.llm.tools.definitions import ToolError

INSTRUCTION = """You can call these tools:
{tools}

To call a tool, answer with one JSON object and nothing else:
{{"name": "the name of the tool", "parameters": {{its arguments}}}}
If you need no tool, answer in plain text.

"""


class TemplateTurns:
    """Prepares messages for the chat template of a family."""

    def __init__(self, family: Family) -> None:
        self._family = family

    def prepared(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]
    ) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """The messages, and the template's variables for the tools."""
        read = [_read(message, f"messages[{place}]") for place, message in enumerate(messages)]
        if self._family.has_own_template:
            return read, {"tools": list(tools)} if tools else {}
        folded = self._folded(read)
        return (_instructed(folded, tools) if tools else folded), {}

    def _folded(self, messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """For a template that knows only texts of users and assistants: calls and results as text."""
        names: dict[str, str] = {}
        folded: list[dict[str, Any]] = []
        after_result = False
        for message in messages:
            is_result = message.get("role") == "tool"
            if message.get("tool_calls"):
                names |= {call["id"]: call["function"]["name"] for call in message["tool_calls"]}
                message = self._with_calls_as_text(message)
            if is_result:
                name = names.get(message["tool_call_id"], "the tool")
                message = {"role": "user", "content": f"The result of {name}:\n{message.get('content')}"}
            if after_result and message.get("role") == "user":  # some templates refuse two users in a row
                text = f"{folded[-1]['content']}\n\n{message.get('content')}"
                folded[-1] = {**folded[-1], "content": text}
            else:
                folded.append(message)
            after_result = is_result
        return folded

    def _with_calls_as_text(self, message: dict[str, Any]) -> dict[str, Any]:
        family = self._family
        texts = [
            f"{family.begin}{family.head}{call['function']['name']}{family.middle}"
            f"{json.dumps(call['function']['arguments'], ensure_ascii=False)}{family.tail}"
            for call in message["tool_calls"]
        ]
        rest = {key: value for key, value in message.items() if key != "tool_calls"}
        return {**rest, "content": "\n".join([text for text in (message.get("content"), *texts) if text])}


def _instructed(
    messages: Sequence[dict[str, Any]], tools: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """With a description of the tools before the first question. Not every template takes a system prompt."""
    described = "\n".join(json.dumps(tool["function"], ensure_ascii=False) for tool in tools)
    instruction = INSTRUCTION.format(tools=described)
    place = next((i for i, message in enumerate(messages) if message.get("role") == "user"), None)
    if place is None:
        return [*messages, {"role": "user", "content": instruction.strip()}]
    first = messages[place]
    question = {**first, "content": instruction + str(first.get("content") or "")}
    return [*messages[:place], question, *messages[place + 1 :]]


def _read(message: Mapping[str, Any], where: str) -> dict[str, Any]:
    """A message whose calls have their arguments as objects. Templates write them as JSON themselves."""
    if message.get("role") == "tool" and not isinstance(message.get("tool_call_id"), str):
        raise ToolError(f"{where}.tool_call_id must be the id of a call", "messages")
    calls = message.get("tool_calls")
    if not calls:
        return {key: value for key, value in message.items() if key != "tool_calls"}
    if not isinstance(calls, Sequence) or isinstance(calls, str):
        raise ToolError(f"{where}.tool_calls must be a list", "messages")
    read = [_call(call, f"{where}.tool_calls[{place}]") for place, call in enumerate(calls)]
    return {**message, "content": message.get("content") or "", "tool_calls": read}


def _call(call: Any, where: str) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise ToolError(f"{where} must have an id and a function with a name", "messages")
    if not isinstance(call.get("id"), str):
        raise ToolError(f"{where}.id must be a text", "messages")
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            arguments = None
    if not isinstance(arguments, Mapping):
        raise ToolError(f"{where}.function.arguments must be a JSON object", "messages")
    named = {"name": function["name"], "arguments": dict(arguments)}
    return {"id": call["id"], "type": "function", "function": named}
