"""Responses in OpenAI's format."""

from __future__ import annotations

import json
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, TypeAlias

from pteron.llm import CallDelta, Piece, Stats, TokenLogprob
from pteron.server.requests import ApiError

LEAST_LOGPROB = -9999.0  # stands for minus infinity, which JSON does not have


def usage(answers: Sequence[Sequence[Stats]]) -> dict[str, Any]:
    """What all answers to all prompts cost together. A prompt counts once."""
    generated = sum(stats.generated_tokens for of_prompt in answers for stats in of_prompt)
    read = sum(of_prompt[0].prompt_tokens for of_prompt in answers)
    return {
        "prompt_tokens": read,
        "completion_tokens": generated,
        "total_tokens": read + generated,
        "prompt_tokens_details": {
            "cached_tokens": sum(of_prompt[0].cached_tokens for of_prompt in answers),
            "context_shifts": sum(stats.shifts for of_prompt in answers for stats in of_prompt),
        },
    }


def event(data: Any) -> bytes:
    """A server-sent event."""
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return f"data: {text}\n\n".encode()


DONE = event("[DONE]")


@dataclass(slots=True)
class Written:
    """One answer to a prompt, as it is written."""

    text: str = ""  # what was there before, and the text so far
    logprobs: list[TokenLogprob] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    last: Piece | None = None

    def add(self, piece: Piece) -> list[TokenLogprob]:
        """Add a piece. Returns the log probabilities that belong to its text."""
        self.text += piece.text
        ends_text = piece.finish_reason == "stop" and not piece.text  # its token is not part of the text
        new = [] if piece.logprob is None or ends_text else [piece.logprob]
        self.logprobs += new
        for delta in piece.calls:
            self._add_call(delta)
        if piece.finish_reason:
            self.last = piece
        return new

    def _add_call(self, delta: CallDelta) -> None:
        if delta.name is not None:
            self.calls.append(call_body(delta))
        else:
            self.calls[-1]["function"]["arguments"] += delta.arguments

    @property
    def reason(self) -> str | None:
        return self.last.finish_reason if self.last else None


def call_body(delta: CallDelta) -> dict[str, Any]:
    """A call, or a part of one in a stream."""
    if delta.name is None:
        return {"function": {"arguments": delta.arguments}}
    function = {"name": delta.name, "arguments": delta.arguments}
    return {"id": delta.id, "type": "function", "function": function}


Answers: TypeAlias = Sequence[Sequence[Written]]  # to each prompt


class AnswerForm(ABC):
    """How an endpoint writes answers: as one JSON object, or as events while they are made."""

    @abstractmethod
    def whole(self, answers: Answers) -> dict[str, Any]:
        """All answers to each prompt."""

    @abstractmethod
    def opening(self, index: int) -> bytes:
        """What comes before the text of an answer."""

    @abstractmethod
    def chunk(self, index: int, text: str, logprobs: Sequence[TokenLogprob] = ()) -> bytes: ...

    @abstractmethod
    def call(self, index: int, delta: CallDelta) -> bytes:
        """A part of a tool call."""

    @abstractmethod
    def ending(self, index: int, answer: Written) -> bytes:
        """The end of one answer."""

    @abstractmethod
    def closing(self, answers: Answers, include_usage: bool) -> bytes:
        """The end of all answers."""

    @abstractmethod
    def failure(self, error: ApiError) -> bytes:
        """The end after an error."""


class Form(AnswerForm):
    """A list of choices, complete and in chunks."""

    prefix: str
    whole_object: str
    chunk_object: str

    def __init__(self, model: str) -> None:
        self._id = f"{self.prefix}-{uuid.uuid4().hex}"
        self._created = int(time.time())
        self._model = model

    def whole(self, answers: Answers) -> dict[str, Any]:
        choices = [
            self._choice(index, self._content(answer), self._logprobs(answer.logprobs), answer.reason)
            for index, answer in enumerate(chain.from_iterable(answers))
        ]
        return {**self._head(self.whole_object), "choices": choices, "usage": _usage_of(answers)}

    def opening(self, index: int) -> bytes:
        return b""

    def chunk(self, index: int, text: str, logprobs: Sequence[TokenLogprob] = ()) -> bytes:
        return self._chunk([self._choice(index, self._delta(text), self._logprobs(logprobs), None)])

    def call(self, index: int, delta: CallDelta) -> bytes:
        content = {"delta": {"tool_calls": [{"index": delta.index, **call_body(delta)}]}}
        return self._chunk([self._choice(index, content, None, None)])

    def ending(self, index: int, answer: Written) -> bytes:
        return self._chunk([self._choice(index, self._delta(""), None, answer.reason)])

    def closing(self, answers: Answers, include_usage: bool) -> bytes:
        return (self._chunk([], usage=_usage_of(answers)) if include_usage else b"") + DONE

    def failure(self, error: ApiError) -> bytes:
        return event(error.body)

    def _chunk(self, choices: list[Any], **more: Any) -> bytes:
        return event({**self._head(self.chunk_object), "choices": choices, **more})

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self._id, "object": kind, "created": self._created, "model": self._model}

    @staticmethod
    def _choice(
        index: int, content: dict[str, Any], logprobs: dict[str, Any] | None, reason: str | None
    ) -> dict[str, Any]:
        return {"index": index, **content, "logprobs": logprobs, "finish_reason": reason}

    @abstractmethod
    def _content(self, answer: Written) -> dict[str, Any]: ...

    @abstractmethod
    def _delta(self, text: str) -> dict[str, Any]: ...

    @abstractmethod
    def _logprobs(self, logprobs: Sequence[TokenLogprob]) -> dict[str, Any] | None: ...


class ChatForm(Form):
    prefix, whole_object, chunk_object = "chatcmpl", "chat.completion", "chat.completion.chunk"

    def opening(self, index: int) -> bytes:
        return self._chunk([self._choice(index, {"delta": {"role": "assistant", "content": ""}}, None, None)])

    def _content(self, answer: Written) -> dict[str, Any]:
        text = None if answer.calls and not answer.text else answer.text
        message = {"role": "assistant", "content": text, "refusal": None}
        return {"message": {**message, "tool_calls": answer.calls} if answer.calls else message}

    def _delta(self, text: str) -> dict[str, Any]:
        return {"delta": {"content": text} if text else {}}

    def _logprobs(self, logprobs: Sequence[TokenLogprob]) -> dict[str, Any] | None:
        if not logprobs:
            return None
        content = [{**_entry(item), "top_logprobs": [_entry(top) for top in item.top]} for item in logprobs]
        return {"content": content, "refusal": None}


class CompletionForm(Form):
    prefix, whole_object, chunk_object = "cmpl", "text_completion", "text_completion"

    def _content(self, answer: Written) -> dict[str, Any]:
        return {"text": answer.text}

    def _delta(self, text: str) -> dict[str, Any]:
        return {"text": text}

    def _logprobs(self, logprobs: Sequence[TokenLogprob]) -> dict[str, Any] | None:
        if not logprobs:
            return None
        return {
            "tokens": [item.text for item in logprobs],
            "token_logprobs": [_finite(item.logprob) for item in logprobs],
            "top_logprobs": [{top.text: _finite(top.logprob) for top in item.top} for item in logprobs],
            "text_offset": None,
        }


def _entry(item: TokenLogprob) -> dict[str, Any]:
    """A token. Its bytes are not known if it is only a part of a character."""
    known = "\ufffd" not in item.text
    return {
        "token": item.text,
        "logprob": _finite(item.logprob),
        "bytes": list(item.text.encode()) if known else None,
    }


def _finite(logprob: float) -> float:
    return max(logprob, LEAST_LOGPROB)


def _usage_of(answers: Answers) -> dict[str, Any]:
    return usage([[a.last.stats for a in of_prompt if a.last and a.last.stats] for of_prompt in answers])
