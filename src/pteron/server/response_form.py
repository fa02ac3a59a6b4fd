"""The responses of /v1/responses, complete and as events."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from pteron.llm import CallDelta, Stats, TokenLogprob
from pteron.server.requests import ApiError
from pteron.server.responses import AnswerForm, Answers, Written, usage

Store: TypeAlias = Callable[[dict[str, Any], Sequence[dict[str, Any]]], None]


@dataclass(slots=True)
class OutputItem:
    """A part of the output that is being written: a message or a call."""

    id: str
    index: int
    call: CallDelta | None = None
    text: str = field(default="")  # of the message, or the arguments of the call

    def body(self, status: str) -> dict[str, Any]:
        if self.call:
            names = {"call_id": self.call.id, "name": self.call.name}
            return {"type": "function_call", "id": self.id, "status": status, **names, "arguments": self.text}
        content = [self.part()] if status != "in_progress" else []
        return {"type": "message", "id": self.id, "status": status, "role": "assistant", "content": content}

    def part(self) -> dict[str, Any]:
        return {"type": "output_text", "text": self.text, "annotations": [], "logprobs": []}


class ResponseForm(AnswerForm):
    """One answer. Its items are written one after the other: a message, then calls."""

    def __init__(
        self, model: str, *, details: dict[str, Any], messages: Sequence[dict[str, Any]], store: Store | None
    ) -> None:
        """`store` is called with the complete response and the messages up to its end."""
        self._head = {
            "id": f"resp_{uuid.uuid4().hex}",
            "object": "response",
            "created_at": int(time.time()),
            "model": model,
            "background": False,
            "reasoning": {"effort": None, "summary": None},
            **details,
        }
        self._messages = messages
        self._store = store
        self._number = 0  # of the next event
        self._items: list[OutputItem] = []
        self._is_open = False  # whether the last item is being written

    def whole(self, answers: Answers) -> dict[str, Any]:
        [[answer]] = answers
        if answer.text or not answer.calls:
            self._items.append(OutputItem(_new_id("msg"), 0, text=answer.text))
        for call in answer.calls:
            function = call["function"]
            head = CallDelta(0, id=call["id"], name=function["name"])
            self._items.append(OutputItem(_new_id("fc"), len(self._items), head, function["arguments"]))
        return self._finished(answer)

    def opening(self, index: int) -> bytes:
        body = self._body("in_progress")
        return self._event("response.created", response=body) + self._event(
            "response.in_progress", response=body
        )

    def chunk(self, index: int, text: str, logprobs: Sequence[TokenLogprob] = ()) -> bytes:
        if not text:
            return b""
        before = b"" if self._is_open else self._begin(OutputItem(_new_id("msg"), len(self._items)))
        self._items[-1].text += text
        return before + self._text_event("response.output_text.delta", delta=text, logprobs=[])

    def call(self, index: int, delta: CallDelta) -> bytes:
        if delta.name is not None:
            item = OutputItem(_new_id("fc"), len(self._items), delta)
            return self._end("completed") + self._begin(item)
        self._items[-1].text += delta.arguments
        return self._item_event("response.function_call_arguments.delta", delta=delta.arguments)

    def ending(self, index: int, answer: Written) -> bytes:
        nothing = b"" if self._items else self._begin(OutputItem(_new_id("msg"), 0))
        status = _status(answer)
        ended = nothing + self._end(status)
        return ended + self._event(f"response.{status}", response=self._finished(answer))

    def closing(self, answers: Answers, include_usage: bool) -> bytes:
        return b""

    def failure(self, error: ApiError) -> bytes:
        reason = {"code": "server_error", "message": str(error)}
        return self._event("response.failed", response={**self._body("failed"), "error": reason})

    def _begin(self, item: OutputItem) -> bytes:
        self._items.append(item)
        self._is_open = True
        place = {"output_index": item.index}
        added = self._event("response.output_item.added", **place, item=item.body("in_progress"))
        return added if item.call else added + self._part_event("response.content_part.added")

    def _end(self, status: str) -> bytes:
        """End the last item, if it is open."""
        if not self._is_open:
            return b""
        self._is_open = False
        item = self._items[-1]
        if item.call:
            done = self._item_event(
                "response.function_call_arguments.done", name=item.call.name, arguments=item.text
            )
        else:
            done = self._text_event("response.output_text.done", text=item.text, logprobs=[])
            done += self._part_event("response.content_part.done")
        ended = {"output_index": item.index, "item": item.body(status)}
        return done + self._event("response.output_item.done", **ended)

    def _finished(self, answer: Written) -> dict[str, Any]:
        body = self._body(_status(answer), answer)
        if self._store:
            message: dict[str, Any] = {"role": "assistant", "content": answer.text}
            if answer.calls:
                message["tool_calls"] = answer.calls
            self._store(body, [*self._messages, message])
        return body

    def _body(self, status: str, answer: Written | None = None) -> dict[str, Any]:
        stats = answer.last.stats if answer and answer.last else None
        is_cut = status == "incomplete"
        return {
            **self._head,
            "status": status,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
            "output": [item.body(status) for item in self._items],
            "usage": _usage(stats) if stats else None,
        }

    def _text_event(self, kind: str, **more: Any) -> bytes:
        return self._item_event(kind, content_index=0, **more)

    def _part_event(self, kind: str) -> bytes:
        return self._text_event(kind, part=self._items[-1].part())

    def _item_event(self, kind: str, **more: Any) -> bytes:
        item = self._items[-1]
        return self._event(kind, item_id=item.id, output_index=item.index, **more)

    def _event(self, kind: str, **more: Any) -> bytes:
        data = {"type": kind, "sequence_number": self._number, **more}
        self._number += 1
        return f"event: {kind}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n".encode()


def _status(answer: Written) -> str:
    return "incomplete" if answer.reason == "length" else "completed"


def _new_id(prefix: str) -> str:
    return f"{prefix}_{uuid.uuid4().hex}"


def _usage(stats: Stats) -> dict[str, Any]:
    counted = usage([[stats]])
    return {
        "input_tokens": counted["prompt_tokens"],
        "input_tokens_details": {"cached_tokens": stats.cached_tokens},
        "output_tokens": counted["completion_tokens"],
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": counted["total_tokens"],
    }
