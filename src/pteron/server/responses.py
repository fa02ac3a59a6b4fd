"""Responses in OpenAI's format."""

from __future__ import annotations

import json
import time
import uuid
from abc import ABC, abstractmethod
from typing import Any

from pteron.llm import Piece, Stats


def usage(stats: Stats) -> dict[str, Any]:
    return {
        "prompt_tokens": stats.prompt_tokens,
        "completion_tokens": stats.generated_tokens,
        "total_tokens": stats.prompt_tokens + stats.generated_tokens,
        "prompt_tokens_details": {"cached_tokens": stats.cached_tokens},
    }


def event(data: Any) -> bytes:
    """A server-sent event."""
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return f"data: {text}\n\n".encode()


DONE = event("[DONE]")


class Form(ABC):
    """The response format of one endpoint, complete and in chunks."""

    prefix: str
    whole_object: str
    chunk_object: str

    def __init__(self, model: str) -> None:
        self._id = f"{self.prefix}-{uuid.uuid4().hex}"
        self._created = int(time.time())
        self._model = model

    def whole(self, text: str, last: Piece) -> dict[str, Any]:
        assert last.stats is not None
        choice = self._choice(self._content(text), last.finish_reason)
        return {**self._head(self.whole_object), "choices": [choice], "usage": usage(last.stats)}

    def opening(self) -> bytes:
        """What comes before the text."""
        return b""

    def chunk(self, text: str) -> bytes:
        return self._chunk([self._choice(self._delta(text), None)])

    def closing(self, last: Piece, include_usage: bool) -> bytes:
        assert last.stats is not None
        end = self._chunk([self._choice(self._delta(""), last.finish_reason)])
        return end + (self._chunk([], usage=usage(last.stats)) if include_usage else b"") + DONE

    def _chunk(self, choices: list[Any], **more: Any) -> bytes:
        return event({**self._head(self.chunk_object), "choices": choices, **more})

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self._id, "object": kind, "created": self._created, "model": self._model}

    @staticmethod
    def _choice(content: dict[str, Any], reason: str | None) -> dict[str, Any]:
        return {"index": 0, **content, "logprobs": None, "finish_reason": reason}

    @abstractmethod
    def _content(self, text: str) -> dict[str, Any]: ...

    @abstractmethod
    def _delta(self, text: str) -> dict[str, Any]: ...


class ChatForm(Form):
    prefix, whole_object, chunk_object = "chatcmpl", "chat.completion", "chat.completion.chunk"

    def opening(self) -> bytes:
        return self._chunk([self._choice({"delta": {"role": "assistant", "content": ""}}, None)])

    def _content(self, text: str) -> dict[str, Any]:
        return {"message": {"role": "assistant", "content": text, "refusal": None}}

    def _delta(self, text: str) -> dict[str, Any]:
        return {"delta": {"content": text} if text else {}}


class CompletionForm(Form):
    prefix, whole_object, chunk_object = "cmpl", "text_completion", "text_completion"

    def _content(self, text: str) -> dict[str, Any]:
        return {"text": text}

    def _delta(self, text: str) -> dict[str, Any]:
        return {"text": text}
