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

from pteron.errors import PteronError
from pteron.llm.chat_template import Message
from pteron.llm.context import ContextWindow
from pteron.llm.logprobs import TokenLogprob, token_logprob
from pteron.llm.options import AnswerOptions
from pteron.llm.sampling import Sampler, Sampling
from pteron.llm.session import Session
from pteron.llm.stats import FinishReason, Stats
from pteron.llm.tokenizer import TextStream

if TYPE_CHECKING:
    from pteron.llm.model import LanguageModel

Prompt: TypeAlias = str | Sequence[int] | Sequence[Message]
Logits: TypeAlias = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Piece:
    """A token and the text that is now complete, which may be empty. The last piece has a reason."""

    text: str
    token: int | None
    finish_reason: FinishReason | None = None
    stats: Stats | None = None
    logprob: TokenLogprob | None = None  # only if asked for


@dataclass(frozen=True, slots=True)
class Generation:
    """A whole answer."""

    text: str
    tokens: list[int] = field(repr=False)
    finish_reason: FinishReason
    stats: Stats
    logprobs: list[TokenLogprob] = field(default_factory=list, repr=False)  # only if asked for

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
        window: ContextWindow,
        sampling: Sampling,
        options: AnswerOptions,
        session: Session | None = None,
        leader: Stream | None = None,
    ) -> None:
        """`leader` is another answer to the same prompt. `step` waits until it has read the prompt."""
        self._window = window
        self._leader = None if leader is None else weakref.ref(leader)
        self._answer = Answer(model, window, sampling, options)
        # The generator has only a weak reference to its stream, so that a dropped stream is closed at once.
        self._steps = self._answer.steps(session, weakref.ref(self))

    @property
    def prompt(self) -> list[int]:
        """The tokens that the answer follows."""
        return self._window.tokens

    @property
    def messages(self) -> list[dict[str, Any]] | None:
        """The messages that the answer follows, without those that were dropped. None if there are none."""
        return self._window.messages

    def __next__(self) -> Piece:
        while (piece := next(self._steps)) is None:
            pass
        return piece

    def step(self) -> Piece | None:
        """Run the program once. Returns the next piece, or None while the prompt is read."""
        leader = None if self._leader is None else self._leader()
        if leader is not None and leader.is_reading:
            return None
        return next(self._steps)

    @property
    def is_reading(self) -> bool:
        """Whether the prompt is being read."""
        return self._answer.is_reading

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
        self, model: LanguageModel, window: ContextWindow, sampling: Sampling, options: AnswerOptions
    ) -> None:
        self.cancelled = threading.Event()
        self.is_reading = False
        self._model = model
        self._window = window
        self._prompt_tokens = len(window.tokens)
        breakers = model.tokens_containing(sampling.dry_breakers) if sampling.dry_multiplier else ()
        self._ends = options.ends(model.eos_ids)
        constraint = model.grammars.constraint(source, self._ends) if (source := options.source) else None
        self._sampler = Sampler(sampling, window.tokens, breakers, constraint)
        self._decoded = TextStream(model.tokenizer, options.stops)
        self._options = options
        self._clock = Clock()
        self._cached = 0
        self._written: list[int] = []
        self._texts: list[str] = []
        self._left: list[int] | None = None  # what is left of all tokens after a shift, to be read again

    def steps(
        self, session: Session | None, stream: weakref.ref[Stream]
    ) -> Generator[Piece | None, None, None]:
        """Each step runs the program once: None for a part of the prompt, then pieces."""
        self._clock.start()
        source = (
            nullcontext(session) if session else self._model.sessions.borrow(self._model, self._window.tokens)
        )
        with source as taken, taken.turn(stream):
            self._cached = taken.common_prefix(self._window.tokens)
            logits = yield from self._read(taken, self._window.tokens)
            while logits is not None:
                token = self._sampler.choose(logits)
                is_full = len(taken.tokens) == self._model.context_length
                piece = self._piece(token, logits, is_full)
                if piece.finish_reason:
                    self._remember(taken)
                yield piece
                if piece.finish_reason:
                    return
                logits = yield from self._continue(taken, token)
            if any(self._texts):
                self._remember(taken)
            yield Piece("", None, "cancelled", self.stats)

    def _continue(self, session: Session, token: int) -> Generator[None, None, Logits | None]:
        """The logits after a new token; None if the answer was cancelled."""
        if self.cancelled.is_set():
            return None
        if self._left is None:
            return session.advance([token])
        left, self._left = self._left, None
        return (yield from self._read(session, left))

    def _read(self, session: Session, tokens: Sequence[int]) -> Generator[None, None, Logits | None]:
        """Run what the session does not know yet. Returns the last logits; None if it was cancelled."""
        known = session.common_prefix(tokens)
        session.rewind(known)
        most = self._model.max_length
        chunk = min(self._options.prefill_chunk or most, most)
        self.is_reading = True
        try:
            while not self.cancelled.is_set():
                done = len(session.tokens)
                logits = session.advance(tokens[done : done + chunk])
                if self._options.on_prefill:
                    self._options.on_prefill(len(session.tokens) - known, len(tokens) - known)
                if len(session.tokens) == len(tokens):
                    return logits
                yield None
            return None
        finally:
            self.is_reading = False

    def _piece(self, token: int, logits: Logits, is_full: bool) -> Piece:
        """The piece of a new token. It is the last one if the context is full and cannot be shifted."""
        self._written.append(token)
        self._clock.tick()
        reason: FinishReason | None = None
        if token in self._ends:
            text, reason = self._decoded.finish(), "stop"
        else:
            text = self._decoded.push(token)
            if self._decoded.stopped:
                reason = "stop"
            elif self._sampler.is_complete:
                text += self._decoded.finish()
                reason = "stop"
            elif len(self._written) == self._options.max_new_tokens or (is_full and not self._shift()):
                text += self._decoded.finish()
                reason = "stop" if self._decoded.stopped else "length"
        self._texts.append(text)
        return Piece(text, token, reason, self.stats if reason else None, self._logprob(logits, token))

    def _shift(self) -> bool:
        """Drop the oldest part of the conversation, if the options and its length allow it."""
        self._left = self._window.shift(self._written)
        return self._left is not None

    def _logprob(self, logits: Logits, token: int) -> TokenLogprob | None:
        if not self._options.logprobs:
            return None
        return token_logprob(logits, token, self._model.tokenizer, self._options.top_logprobs)

    def _remember(self, session: Session) -> None:
        """Store the messages in the session, with the answer as the last of them."""
        if self._window.messages is not None:
            answer = {"role": "assistant", "content": "".join(self._texts)}
            session.messages = [*self._window.messages, answer]

    @property
    def stats(self) -> Stats:
        return Stats(
            prompt_tokens=self._prompt_tokens,
            cached_tokens=self._cached,
            generated_tokens=len(self._written),
            time_to_first_token=self._clock.to_first,
            generation_seconds=self._clock.after_first,
            gpu_nbytes=self._model.program.device.allocated_nbytes,
            shifts=self._window.shifts,
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
    texts, tokens, logprobs = [], [], []
    for piece in stream:
        texts.append(piece.text)
        if piece.token is not None:
            tokens.append(piece.token)
        if piece.logprob is not None:
            logprobs.append(piece.logprob)
        if piece.finish_reason and piece.stats:
            return Generation("".join(texts), tokens, piece.finish_reason, piece.stats, logprobs)
    raise PteronError("the stream was closed before its end")
