"""Parse and check requests in OpenAI's format. Unsupported options are refused, never ignored silently."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pteron.llm import Options
from pteron.llm.generate import Prompt


class ApiError(Exception):
    """An error response in OpenAI's format."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        kind: str | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        kind = kind or ("invalid_request_error" if status < 500 else "server_error")
        self.body = {"error": {"message": message, "type": kind, "param": param, "code": code}}


@dataclass(frozen=True, slots=True)
class Request:
    """A checked request of either kind."""

    prompt: Prompt
    options: Options
    stream: bool
    include_usage: bool
    echo: str  # what the answer begins with


# Unsupported fields, and the values without an effect. Other values would change the answer: refuse them.
_UNSUPPORTED: dict[str, tuple[Any, ...]] = {
    "n": (None, 1),
    "best_of": (None, 1),
    "logprobs": (None, False),
    "top_logprobs": (None, 0),
    "suffix": (None, ""),
    "logit_bias": (None, {}),
    "presence_penalty": (None, 0),
    "frequency_penalty": (None, 0),
    "tools": (None, []),
    "functions": (None, []),
    "tool_choice": (None, "none", "auto"),
    "response_format": (None, {"type": "text"}),
    "modalities": (None, ["text"]),
    "audio": (None,),
}


# The JSON reader holds Python's lock, so it must not take long. Long texts are fast, many values are slow.
MOST_VALUES = 100_000
MOST_STOPS, LONGEST_STOP = 16, 1000  # each is looked for after every token
LARGEST = 2**63 - 1
SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")  # half of a character, if its other half is missing


def parse_chat(body: bytes) -> Request:
    """The body of /v1/chat/completions."""
    fields = _fields(body)
    messages = fields.get("messages")
    if not isinstance(messages, list) or not messages:
        raise ApiError(400, "messages must be a list of one message or more", param="messages")
    prompt = [_message(message, f"messages[{i}]") for i, message in enumerate(messages)]
    most = _integer(fields, "max_completion_tokens", 1) or _integer(fields, "max_tokens", 1)
    return _request(fields, prompt, most, "")


def parse_completion(body: bytes) -> Request:
    """The body of /v1/completions."""
    fields = _fields(body)
    prompt = fields.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], (str, list)):
        prompt = prompt[0]
    is_tokens = isinstance(prompt, list) and all(type(token) is int for token in prompt)
    if not prompt or not (isinstance(prompt, str) or is_tokens):
        raise ApiError(400, "prompt must be one text or one list of tokens, and not empty", param="prompt")
    echo = _boolean(fields, "echo")
    if echo and not isinstance(prompt, str):
        raise ApiError(400, "echo needs a prompt that is text", param="echo")
    return _request(fields, prompt, _integer(fields, "max_tokens", 1) or 16, prompt if echo else "")


def _fields(body: bytes) -> Mapping[str, Any]:
    fields = _json(body)
    if not isinstance(fields, dict):
        raise ApiError(400, "the body must be a JSON object")
    for name, harmless in _UNSUPPORTED.items():
        if fields.get(name) not in harmless:
            raise ApiError(400, f"{name} is not supported", param=name, code="unsupported_parameter")
    return fields


def _json(body: bytes) -> Any:
    if _has_many_values(body):
        raise ApiError(400, f"the body has more than {MOST_VALUES} values")
    try:
        value = json.loads(body.decode())
        if SURROGATE.search(body):
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ApiError(400, "the body holds a lone surrogate, which is no character") from None
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else "not JSON"
        raise ApiError(400, f"the body is {reason}") from None
    return value


def _has_many_values(body: bytes) -> bool:
    """Whether there are more than MOST_VALUES commas and brackets outside texts."""
    plain = body.replace(rb"\\", b"").replace(
        rb"\"", b""
    )  # without escapes, every quote begins or ends a text
    if plain.count(b'"') > 4 * MOST_VALUES:
        return True
    outside = b"".join(plain.split(b'"')[::2])
    return sum(map(outside.count, (b",", b"[", b"{"))) > MOST_VALUES


def _message(message: Any, where: str) -> dict[str, Any]:
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise ApiError(400, f"{where} must be an object with a role", param=where)
    return {**message, "content": _content(message.get("content"), f"{where}.content")}


def _content(content: Any, where: str) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, list) and all(
        isinstance(part, dict) and part.get("type") == "text" for part in content
    ):
        return "".join(str(part.get("text", "")) for part in content)
    raise ApiError(400, f"{where} must be text", param=where)


def _request(fields: Mapping[str, Any], prompt: Prompt, most: int | None, echo: str) -> Request:
    options: Options = {
        "max_new_tokens": most,
        "stop": _stops(fields.get("stop")),
        "temperature": _number(fields, "temperature", 1.0),
        "top_p": _number(fields, "top_p", 1.0),
        "min_p": _number(fields, "min_p", 0.0),
        "top_k": _integer(fields, "top_k", 0) or 0,
        "repetition_penalty": _number(fields, "repetition_penalty", 1.0),
        "seed": _integer(fields, "seed", 0),
    }
    stream_options = fields.get("stream_options") or {}
    if not isinstance(stream_options, dict):
        raise ApiError(400, "stream_options must be an object", param="stream_options")
    return Request(
        prompt, options, _boolean(fields, "stream"), _boolean(stream_options, "include_usage"), echo
    )


def _stops(stop: Any) -> list[str]:
    stops = [] if stop is None else [stop] if isinstance(stop, str) else stop
    if not isinstance(stops, list) or not all(isinstance(s, str) and s for s in stops):
        raise ApiError(400, "stop must be a text or a list of texts, none of them empty", param="stop")
    if len(stops) > MOST_STOPS or any(len(s) > LONGEST_STOP for s in stops):
        most = f"at most {MOST_STOPS} texts of at most {LONGEST_STOP} characters"
        raise ApiError(400, f"stop takes {most}", param="stop")
    return stops


def _number(fields: Mapping[str, Any], name: str, default: float) -> float:
    value = fields.get(name)
    if value is None:
        return default
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or abs(value) > LARGEST or math.isnan(value):
        raise ApiError(400, f"{name} must be a number", param=name)
    return float(value)


def _integer(fields: Mapping[str, Any], name: str, least: int) -> int | None:
    value = fields.get(name)
    if value is None:
        return None
    if type(value) is not int or not least <= value <= LARGEST:
        raise ApiError(400, f"{name} must be an integer from {least} to {LARGEST}", param=name)
    return value


def _boolean(fields: Mapping[str, Any], name: str) -> bool:
    value = fields.get(name)
    if value not in (None, True, False):
        raise ApiError(400, f"{name} must be true or false", param=name)
    return bool(value)
