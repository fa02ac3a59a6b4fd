"""Parse and check requests in OpenAI's format. Unsupported options are refused, never ignored silently."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, cast

from pteron.llm import Options
from pteron.llm.closed_schema import closed
from pteron.llm.generate import Prompt
from pteron.llm.options import TABLE
from pteron.server.field_names import CHAT, COMPLETION, UNSUPPORTED, first_unknown, similar_name


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

    model: str | None  # None: the one that is served
    prompts: tuple[Prompt, ...]
    n: int  # the number of answers to each prompt
    options: Options
    stream: bool
    include_usage: bool
    echo: bool  # an answer begins with its prompt

    def beginning(self, index: int) -> str:
        """What the answer with this number begins with. All answers to the first prompt come first."""
        return str(self.prompts[index // self.n]) if self.echo else ""


# The JSON reader holds Python's lock, so it must not take long. Long texts are fast, many values are slow.
MOST_VALUES = 100_000
MOST_PROMPTS, MOST_ANSWERS, MOST_TOP_LOGPROBS, MOST_BIASES = 64, 16, 20, 1000
LONGEST_NAME = 100  # of a field, in an error
MOST_STOPS, LONGEST_STOP = 16, 1000  # each is looked for after every token
LARGEST = 2**63 - 1
SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")  # half of a character, if its other half is missing


def parse_chat(body: bytes) -> Request:
    """The body of /v1/chat/completions."""
    fields = json_object(body)
    check_names(fields, CHAT, UNSUPPORTED)
    messages = fields.get("messages")
    if not isinstance(messages, list) or not messages:
        raise ApiError(400, "messages must be a list of one message or more", param="messages")
    prompt = [_message(message, f"messages[{i}]") for i, message in enumerate(messages)]
    most = integer(fields, "max_completion_tokens", 1) or integer(fields, "max_tokens", 1)
    logprobs = boolean(fields, "logprobs")
    top = integer(fields, "top_logprobs", 0, MOST_TOP_LOGPROBS) or 0
    if top and not logprobs:
        raise ApiError(400, "top_logprobs needs logprobs: true", param="top_logprobs")
    own: Options = {"max_new_tokens": most, "logprobs": logprobs, "top_logprobs": top, **tool_options(fields)}
    return make_request(fields, (prompt,), own)


def parse_completion(body: bytes) -> Request:
    """The body of /v1/completions."""
    fields = json_object(body)
    check_names(fields, COMPLETION, UNSUPPORTED)
    prompts = _prompts(fields.get("prompt"))
    echo = boolean(fields, "echo")
    if echo and not all(isinstance(prompt, str) for prompt in prompts):
        raise ApiError(400, "echo needs a prompt that is text", param="echo")
    top = integer(fields, "logprobs", 0, MOST_TOP_LOGPROBS)
    if echo and top is not None:
        raise ApiError(400, "logprobs of an echoed prompt are not supported", param="logprobs")
    own: Options = {
        "max_new_tokens": integer(fields, "max_tokens", 1) or 16,
        "logprobs": top is not None,
        "top_logprobs": top or 0,
    }
    return make_request(fields, prompts, own, echo)


def _prompts(given: Any) -> tuple[Prompt, ...]:
    """A text, a list of tokens, or a list of these."""
    several = isinstance(given, list) and bool(given) and isinstance(given[0], (str, list))
    prompts = tuple(given) if several else (given,)
    if not all(_is_prompt(prompt) for prompt in prompts):
        wanted = "a text, a list of tokens, or a list of these, and none of them may be empty"
        raise ApiError(400, f"prompt must be {wanted}", param="prompt")
    if len(prompts) > MOST_PROMPTS:
        raise ApiError(
            400, f"prompt has {len(prompts)} entries: expected at most {MOST_PROMPTS}", param="prompt"
        )
    return prompts


def _is_prompt(given: Any) -> bool:
    is_tokens = isinstance(given, list) and all(type(token) is int for token in given)
    return bool(given) and (isinstance(given, str) or is_tokens)


def tool_options(fields: Mapping[str, Any]) -> Options:
    """`LanguageModel` checks the tools themselves."""
    given = {name: fields[name] for name in ("tools", "tool_choice") if fields.get(name) is not None}
    parallel = fields.get("parallel_tool_calls") is None or boolean(fields, "parallel_tool_calls")
    tools: Any = {**given, "parallel_tool_calls": parallel}
    return cast(Options, tools)


def check_names(
    fields: Mapping[str, Any], known: Collection[str], unsupported: Mapping[str, tuple[Any, ...]]
) -> None:
    """Refuse a field without a meaning here (see `field_names`)."""
    name = first_unknown(fields, known, unsupported)
    if name is not None:
        shown, guess = name[:LONGEST_NAME], similar_name(name[:LONGEST_NAME], known)
        hint = f": did you mean {guess}?" if guess else ""
        raise ApiError(400, f"{shown} is not supported{hint}", param=shown, code="unsupported_parameter")


def json_object(body: bytes) -> Mapping[str, Any]:
    fields = _json(body)
    if not isinstance(fields, dict):
        raise ApiError(400, "the body must be a JSON object")
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
    kinds = (
        [part.get("type") for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    )
    other = next((f", not {kind}" for kind in kinds if isinstance(kind, str) and kind != "text"), "")
    raise ApiError(400, f"{where} must be text{other[:40]}", param=where)


def make_request(
    fields: Mapping[str, Any], prompts: tuple[Prompt, ...], own: Options, echo: bool = False
) -> Request:
    """`own` are the options that the two kinds of requests name differently."""
    options: Any = {
        **own,
        **_sampling(fields),
        "stop": _stops(fields.get("stop")),
        "logit_bias": _biases(fields.get("logit_bias")),
        "schema": _schema(fields.get("response_format")),
    }
    n = integer(fields, "n", 1, MOST_ANSWERS) or 1
    stream = boolean(fields, "stream")
    stream_options = fields.get("stream_options") or {}
    if not isinstance(stream_options, dict):
        raise ApiError(400, "stream_options must be an object", param="stream_options")
    return Request(
        model_name(fields),
        prompts,
        n,
        options,
        stream,
        boolean(stream_options, "include_usage"),
        echo,
    )


def model_name(fields: Mapping[str, Any]) -> str | None:
    model = fields.get("model")
    if model is not None and not isinstance(model, str):
        raise ApiError(400, "model must be a text", param="model")
    return model


def _schema(form: Any) -> dict[str, Any] | None:
    """The JSON schema that `response_format` asks for. With `strict`, objects have no other properties."""
    kind = form.get("type") if isinstance(form, dict) else "text" if form is None else None
    if kind == "text":
        return None
    if kind == "json_object":
        return {"type": "object"}
    if kind != "json_schema":
        expected = "an object with the type text, json_object or json_schema"
        raise ApiError(400, f"response_format must be {expected}", param="response_format")
    named = form.get("json_schema")
    schema = named.get("schema") if isinstance(named, dict) else None
    where = "response_format.json_schema.schema"
    if not isinstance(schema, dict):
        raise ApiError(400, f"{where} must be an object", param=where)
    if not boolean(named, "strict"):
        return schema
    try:
        return dict(closed(schema))
    except RecursionError:
        raise ApiError(400, f"{where} is nested too deeply", param=where) from None


def _stops(stop: Any) -> list[str]:
    stops = [] if stop is None else [stop] if isinstance(stop, str) else stop
    if not isinstance(stops, list) or not all(isinstance(s, str) and s for s in stops):
        raise ApiError(400, "stop must be a text or a list of texts, none of them empty", param="stop")
    if len(stops) > MOST_STOPS or any(len(s) > LONGEST_STOP for s in stops):
        most = f"at most {MOST_STOPS} texts of at most {LONGEST_STOP} characters"
        raise ApiError(400, f"stop takes {most}", param="stop")
    return stops


def _biases(given: Any) -> dict[int, float]:
    """Numbers by token. JSON has only texts as names."""
    if given is None:
        return {}
    if not isinstance(given, dict) or not all(token.isascii() and token.isdigit() for token in given):
        raise ApiError(400, "logit_bias must be an object with a number for each token", param="logit_bias")
    if len(given) > MOST_BIASES or any(len(token) > 10 for token in given):
        raise ApiError(400, f"logit_bias takes at most {MOST_BIASES} tokens", param="logit_bias")
    return {int(token): _number(given, token) or 0.0 for token in given}


def _sampling(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of `Sampling`."""
    found: dict[str, Any] = {}
    for option in TABLE.values():
        if option.kind not in (int, float) or option.name == "max_new_tokens":
            continue
        name = next((name for name in option.names if fields.get(name) is not None), option.names[0])
        value = integer(fields, name) if option.kind is int else _number(fields, name)
        if value is not None and option.check and not option.check.holds(value):
            raise ApiError(400, f"{name} is {value}: expected {option.check.expected}", param=name)
        found[option.name] = option.sent if value is None else value
    return found


def _number(fields: Mapping[str, Any], name: str) -> float | None:
    value = fields.get(name)
    if value is None:
        return None
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or abs(value) > LARGEST or math.isnan(value):
        raise ApiError(400, f"{name} must be a number", param=name)
    return float(value)


def integer(fields: Mapping[str, Any], name: str, least: int = -LARGEST, most: int = LARGEST) -> int | None:
    value = fields.get(name)
    if value is None:
        return None
    if type(value) is not int or not least <= value <= most:
        wanted = (
            ""
            if least == -LARGEST
            else f" of at least {least}"
            if most == LARGEST
            else f" from {least} to {most}"
        )
        raise ApiError(400, f"{name} must be an integer{wanted}", param=name)
    return value


def boolean(fields: Mapping[str, Any], name: str) -> bool:
    value = fields.get(name)
    if value not in (None, True, False):
        raise ApiError(400, f"{name} must be true or false", param=name)
    return bool(value)
