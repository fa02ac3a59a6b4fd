"""Generate an answer: read the prompt in chunks, then generate one token at a time."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Generator, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from pteron.errors import InputError, PteronError
from pteron.llm.chat_template import Message
from pteron.llm.options import GenerationLimits
from pteron.llm.sampling import Sampler, Sampling
from pteron.llm.session import Session
from pteron.llm.stats import FinishReason, Stats
from pteron.llm.tokenizer import TextStream

if TYPE_CHECKING:
    from pteron.llm.model import LanguageModel

Prompt: TypeAlias = str | Sequence[int] | Sequence[Message]


class ContextFull(InputError):
    """A prompt is longer than the model's context."""


def check_room(tokens: int, context_length: int) -> None:
    if tokens > context_length:
        raise ContextFull(f"the prompt has {tokens} tokens, but the model's context has {context_length}")


@dataclass(frozen=True, slots=True)
class Piece:
    """A token and the text that is now complete, which may be empty. The last piece has a reason."""

    text: str
    token: int | None
    finish_reason: FinishReason | None = None
    stats: Stats | None = None


@dataclass(frozen=True, slots=True)
class Generation:
    """A whole answer."""

    text: str
    tokens: list[int] = field(repr=False)
    finish_reason: FinishReason
    stats: Stats

    def __str__(self) -> str:
        return self.text


class Stream(Iterator[Piece]):
    """An iterator of pieces. It may be dropped at any time: the model and its sessions stay usable.

    cancel(): from any thread, also during the prompt. The stream then ends with finish_reason "cancelled".
    close(): ends the stream now, without another piece. Leaving a `with` block or dropping the stream does
    the same.
    """

    def __init__(
        self,
        model: LanguageModel,
        prompt: Sequence[int],
        sampling: Sampling,
        limits: GenerationLimits,
        session: Session | None = None,
    ) -> None:
        if not prompt:
            raise InputError("the prompt is empty: the model needs at least one token")
        check_room(len(prompt), model.context_length)
        self.prompt = list(prompt)
        self._answer = Answer(model, self.prompt, sampling, limits)
        # The generator has only a weak reference to its stream, so that a dropped stream is closed at once.
        self._steps = self._answer.steps(session, weakref.ref(self))

    def __next__(self) -> Piece:
        while (piece := self.step()) is None:
            pass
        return piece

    def step(self) -> Piece | None:
        """Run the program once. Returns the next piece, or None while the prompt is read."""
        return next(self._steps)

    def cancel(self) -> None:
        self._answer.cancelled.set()

    def close(self) -> bool:
        """Returns False if another thread is using the stream: then it is only cancelled."""
        self.cancel()
        try:
            self._steps.close()
        except ValueError:  # a running generator cannot be closed
            return False
        return True

    @property
    def stats(self) -> Stats:
        """Counts and times so far."""
        return self._answer.stats

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class Answer:
    """Generates one answer step by step."""

    def __init__(
        self, model: LanguageModel, prompt: Sequence[int], sampling: Sampling, limits: GenerationLimits
    ) -> None:
        self.cancelled = threading.Event()
        self._model = model
        self._prompt = prompt
        self._sampler = Sampler(sampling, prompt)
        self._text = TextStream(model.tokenizer, limits.stops)
        self._limits = limits
        self._ends = limits.ends(model.eos_ids)
        self._clock = Clock()
        self._cached = 0
        self._generated = 0

    def steps(
        self, session: Session | None, stream: weakref.ref[Stream]
    ) -> Generator[Piece | None, None, None]:
        """Each step runs the program once: None for a part of the prompt, then pieces."""
        self._clock.start()
        source = nullcontext(session) if session else self._model.sessions.borrow(self._prompt)
        with source as taken, taken.turn(stream):
            logits = yield from self._read_prompt(taken)
            while logits is not None:
                token = self._sampler.choose(logits)
                piece = self._piece(token, room=self._model.context_length - len(taken.tokens))
                yield piece
                if piece.finish_reason:
                    return
                logits = None if self.cancelled.is_set() else taken.advance([token])
            yield self._last("", None, "cancelled")

    def _read_prompt(self, session: Session) -> Generator[None, None, np.ndarray[Any, Any] | None]:
        """The logits after the prompt; None if it was cancelled before."""
        self._cached = session.common_prefix(self._prompt)
        session.rewind(self._cached)
        most = self._model.max_length
        chunk = min(self._limits.prefill_chunk or most, most)
        while not self.cancelled.is_set():
            done = len(session.tokens)
            logits = session.advance(self._prompt[done : done + chunk])
            if self._limits.on_prefill:
                self._limits.on_prefill(len(session.tokens) - self._cached, len(self._prompt) - self._cached)
            if len(session.tokens) == len(self._prompt):
                return logits
            yield None
        return None

    def _piece(self, token: int, room: int) -> Piece:
        """The piece of a new token. It is the last one if the context is full."""
        self._generated += 1
        self._clock.tick()
        if token in self._ends:
            return self._last(self._text.finish(), token, "stop")
        text = self._text.push(token)
        if self._text.stopped:
            return self._last(text, token, "stop")
        if room and self._generated != self._limits.max_new_tokens:
            return Piece(text, token)
        text += self._text.finish()
        return self._last(text, token, "stop" if self._text.stopped else "length")

    def _last(self, text: str, token: int | None, reason: FinishReason) -> Piece:
        return Piece(text, token, reason, self.stats)

    @property
    def stats(self) -> Stats:
        return Stats(
            prompt_tokens=len(self._prompt),
            cached_tokens=self._cached,
            generated_tokens=self._generated,
            time_to_first_token=self._clock.to_first,
            generation_seconds=self._clock.after_first,
            gpu_nbytes=self._model.program.device.allocated_nbytes,
        )


class Clock:
    """The times of the start, the first token and the last token of a generation."""

    def __init__(self) -> None:
        self._began = self._first = self._newest = 0.0

    def start(self) -> None:
        self._began = time.perf_counter()

    def tick(self) -> None:
        self._newest = time.perf_counter()
        self._first = self._first or self._newest

    @property
    def to_first(self) -> float:
        return (self._first or time.perf_counter()) - self._began if self._began else 0.0

    @property
    def after_first(self) -> float:
        return self._newest - self._first


def collect(stream: Stream) -> Generation:
    """Run a stream to its end."""
    texts, tokens = [], []
    for piece in stream:
        texts.append(piece.text)
        if piece.token is not None:
            tokens.append(piece.token)
        if piece.finish_reason and piece.stats:
            return Generation("".join(texts), tokens, piece.finish_reason, piece.stats)
    raise PteronError("the stream was closed before its end")
