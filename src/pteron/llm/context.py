"""The part of a conversation that is in the model's context, and what happens when the context is full."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pteron.errors import InputError
from pteron.llm.chat_template import Message

FREE = 1 / 4  # of the context, after old messages were dropped: it should not be full again at once


class ContextFull(InputError):
    """A prompt is longer than the model's context."""


def check_room(tokens: int, context_length: int) -> None:
    if tokens > context_length:
        raise ContextFull(f"the prompt has {tokens} tokens, but the model's context has {context_length}")


class ContextWindow:
    """What an answer follows. This one stays as it is: a full context ends the answer ("stop")."""

    def __init__(
        self, tokens: Sequence[int], context_length: int, messages: Sequence[Message] | None = None
    ) -> None:
        if not tokens:
            raise InputError("the prompt is empty: the model needs at least one token")
        check_room(len(tokens), context_length)
        self.tokens = list(tokens)
        self.messages = None if messages is None else [dict(message) for message in messages]
        self.shifts = 0  # how often the oldest part was dropped
        self._context_length = context_length

    def shift(self, written: Sequence[int]) -> list[int] | None:
        """Drop the oldest part. Returns all tokens that are left; None if nothing can be dropped.

        written: the tokens of the answer so far.
        """
        return None


class TextWindow(ContextWindow):
    """The end of a text. When the context is full, its older half is dropped; a first special token stays."""

    def __init__(self, tokens: Sequence[int], context_length: int, first: int | None) -> None:
        super().__init__(tokens, context_length)
        self._kept = self.tokens[:1] if first is not None and self.tokens[0] == first else []

    def shift(self, written: Sequence[int]) -> list[int] | None:
        half = self._context_length // 2 - len(self._kept)
        if half < 1:
            return None
        self.shifts += 1
        return self._kept + [*self.tokens, *written][-half:]


class TurnWindow(ContextWindow):
    """The last turns of a conversation. The system prompt and the last question always stay."""

    def __init__(
        self,
        messages: Sequence[Message],
        context_length: int,
        encode: Callable[[list[dict[str, Any]]], list[int]],
    ) -> None:
        """`encode` turns messages into tokens. It may raise ContextFull if they are too many."""
        self._encode_any = encode
        self._context_length = context_length
        kept = [dict(message) for message in messages]
        try:
            tokens, shifts = self._encode(kept), 0
        except ContextFull:
            shorter = self._without_oldest(kept, 0)
            if shorter is None:
                raise
            (kept, tokens), shifts = shorter, 1
        super().__init__(tokens, context_length, kept)
        self.shifts = shifts

    def _encode(self, messages: list[dict[str, Any]]) -> list[int]:
        tokens = self._encode_any(messages)
        check_room(len(tokens), self._context_length)
        return tokens

    def shift(self, written: Sequence[int]) -> list[int] | None:
        assert self.messages is not None
        shorter = self._without_oldest(self.messages, len(written))
        if shorter is None:
            return None
        self.messages, self.tokens = shorter
        self.shifts += 1
        return [*self.tokens, *written]

    def _without_oldest(
        self, messages: list[dict[str, Any]], written: int
    ) -> tuple[list[dict[str, Any]], list[int]] | None:
        """The messages without the oldest turns, and their tokens. None if the last turn is too long."""
        system, turns = _split(messages)
        best = None
        for first in range(1, len(turns)):
            kept = [*system, *(message for turn in turns[first:] for message in turn)]
            try:
                tokens = self._encode(kept)
            except ContextFull:
                continue
            used = len(tokens) + written
            if used < self._context_length:
                best = kept, tokens
            if used <= (1 - FREE) * self._context_length:
                break
        return best


def _split(messages: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[list[dict[str, Any]]]]:
    """The system prompt, and the turns. A turn begins with a message of the user."""
    start = next((i for i, m in enumerate(messages) if m.get("role") not in ("system", "developer")), 0)
    turns: list[list[dict[str, Any]]] = []
    for message in messages[start:]:
        if not turns or message.get("role") == "user":
            turns.append([])
        turns[-1].append(message)
    return messages[:start], turns
