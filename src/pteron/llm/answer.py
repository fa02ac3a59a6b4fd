"""One answer: read the prompt in chunks, then generate one token at a time.

An answer is a coroutine: it asks for tokens to be run, and is resumed with what it saw of their logits.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Generator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from pteron.errors import PteronError
from pteron.llm.candidates import Candidates
from pteron.llm.context import ContextWindow
from pteron.llm.decoder import Row, Segment
from pteron.llm.grammar import Source
from pteron.llm.logprobs import TokenLogprob, token_logprob
from pteron.llm.options import AnswerOptions, Sampling
from pteron.llm.sampling import Sampler
from pteron.llm.session import Session
from pteron.llm.session_pool import WaitCancelled
from pteron.llm.stats import FinishReason, Stats
from pteron.llm.tokenizer import TextStream
from pteron.llm.tools import CallDelta, CallReader

if TYPE_CHECKING:
    from pteron.llm.model import LanguageModel


@dataclass(frozen=True, slots=True)
class Piece:
    """The next part of an answer.

    Attributes:
        text: The new text. It is empty while a character or a stop string is incomplete.
        token: The new token.
        finish_reason: In the last piece: `"stop"`, `"length"`, `"tool_calls"` or `"cancelled"`.
        stats: In the last piece: the counts and times of the answer.
        logprob: The log probability of the token, with `logprobs=True`.
        calls: New parts of tool calls. They are not part of the text.
    """

    text: str
    token: int | None
    finish_reason: FinishReason | None = None
    stats: Stats | None = None
    logprob: TokenLogprob | None = None
    calls: tuple[CallDelta, ...] = ()


class Seen(NamedTuple):
    """What an answer needs of the logits after its tokens."""

    candidates: Candidates
    logits: Row | None  # a copy of all, for log probabilities


@dataclass(frozen=True, slots=True)
class Run:
    """What an answer needs next: tokens to be run in its session, and a look at the logits after them."""

    session: Session
    tokens: Sequence[int]
    look: Callable[[Row], Seen]

    def first(self, count: int) -> Run:
        """Only the first of the tokens. The answer then asks for the others again."""
        return self if count >= len(self.tokens) else replace(self, tokens=self.tokens[:count])

    @property
    def segment(self) -> Segment[Seen]:
        return self.session.segment(self.tokens, self.look)

    def finish(self) -> None:
        """The tokens were run: the session has them now."""
        self.session.tokens.extend(self.tokens)


class Answer:
    """The task to answer a prompt. A `Stream` does one alone, a `Batch` does many together.

    It may be dropped at any time. The model and its sessions stay usable.
    """

    def __init__(
        self,
        model: LanguageModel,
        window: ContextWindow,
        sampling: Sampling,
        options: AnswerOptions,
        session: Session | None = None,
    ) -> None:
        """session: None: one that is borrowed when the answer begins."""
        self.decoder = model.decoder
        self.session = session
        self.window = window
        self.lock = threading.Lock()  # held by whoever runs it
        self._writer = Writer(model, window, sampling, options)
        # The generator has only a weak reference to its answer, so that a dropped answer is closed at once.
        self._steps = self._writer.steps(session, weakref.ref(self))

    def take(self) -> None:
        """Keep the answer from others until `release`."""
        if not self.lock.acquire(blocking=False):
            raise PteronError("the answer is being made already: make another one for this prompt")

    def release(self) -> None:
        self.lock.release()
        self.close()

    def resume(self, seen: Seen | None = None) -> Piece | Run:
        """Begin the answer, or go on after a piece or a `Run`.

        seen: of the logits after the tokens that were run. None after a `Run`: nothing was run, because the
            answer is cancelled.
        """
        return self._steps.send(seen)

    def cancel(self) -> None:
        """End the answer with the reason "cancelled". Any thread may call it, also during the prompt."""
        self._writer.cancelled.set()

    def close(self) -> bool:
        """End the answer now, without another piece. False if it is in use: then it is only cancelled."""
        self.cancel()
        if not self.lock.acquire(blocking=False):
            return False
        try:
            self.end()
        finally:
            self.lock.release()
        return True

    def end(self) -> None:
        """End the answer. The caller holds its lock."""
        self._steps.close()

    @property
    def is_cancelled(self) -> bool:
        return self._writer.cancelled.is_set()

    @property
    def reading(self) -> Sequence[int] | None:
        """The tokens that are being read, of which the session knows a part. None if it reads nothing."""
        return self._writer.reading

    @property
    def stats(self) -> Stats:
        """Counts and times so far."""
        return self._writer.stats


Steps: TypeAlias = Generator[Run, Seen | None, Seen | None]


class Writer:
    """Writes the answer."""

    def __init__(
        self, model: LanguageModel, window: ContextWindow, sampling: Sampling, options: AnswerOptions
    ) -> None:
        self.cancelled = threading.Event()
        self.reading: Sequence[int] | None = None
        self._model = model
        self._window = window
        self._prompt_tokens = len(window.tokens)
        breakers = model.tokens_containing(sampling.dry_breakers) if sampling.dry_multiplier else ()
        self._ends = options.ends(model.eos_ids)
        tools = model.tool_use(options)
        source = tools.source if tools else Source.of(options)
        constraint = model.grammars.constraint(source, self._ends) if source else None
        self._sampler = Sampler(sampling, window.tokens, breakers, constraint)
        self._decoded = TextStream(model.tokenizer, options.stops, tools.shown if tools else frozenset())
        self._calls = tools.reader() if tools else CallReader(None)
        self._options = options
        self._clock = Clock()
        self._cached = 0
        self._written: list[int] = []
        self._texts: list[str] = []
        self._left: list[int] | None = None  # what is left of all tokens after a shift, to be read again

    def steps(
        self, session: Session | None, answer: weakref.ref[Answer]
    ) -> Generator[Piece | Run, Seen | None, None]:
        """Runs of the prompt, then a piece and a run for each token. The last piece has a reason."""
        self._clock.start()
        try:
            yield from self._steps(session, answer)
        except WaitCancelled:
            yield Piece("", None, "cancelled", self.stats)

    def _steps(
        self, session: Session | None, answer: weakref.ref[Answer]
    ) -> Generator[Piece | Run, Seen | None, None]:
        sessions, prompt = self._model.sessions, self._window.tokens
        source = nullcontext(session) if session else sessions.borrow(self._model, prompt, self.cancelled)
        with source as taken, taken.turn(answer, self.cancelled):
            self._cached = taken.common_prefix(self._window.tokens)
            seen = yield from self._read(taken, self._window.tokens)
            while seen is not None:
                token = self._sampler.choose_from(seen.candidates)
                is_full = len(taken.tokens) == self._model.context_length
                piece = self._piece(token, seen, is_full)
                if piece.finish_reason:
                    self._remember(taken)
                yield piece
                if piece.finish_reason:
                    return
                seen = yield from self._continue(taken, token)
            if any(self._texts):
                self._remember(taken)
            yield Piece("", None, "cancelled", self.stats)

    def _continue(self, session: Session, token: int) -> Steps:
        """A look at the logits after a new token; None if the answer was cancelled."""
        if self._left is None:
            return (yield Run(session, [token], self._look))
        left, self._left = self._left, None
        return (yield from self._read(session, left))

    def _read(self, session: Session, tokens: Sequence[int]) -> Steps:
        """Run what the session does not know yet. Returns the last look; None if it was cancelled."""
        known = session.common_prefix(tokens)
        session.rewind(known)
        if known == len(tokens):
            return self._look(session.end_logits)
        chunk = self._options.prefill_chunk or len(tokens)
        last: list[Row] = []

        def look(logits: Row) -> Seen:
            last[:] = [logits.copy()]
            return self._look(logits)

        self.reading = tokens
        try:
            while len(session.tokens) < len(tokens):
                done = len(session.tokens)
                seen = yield Run(session, tokens[done : done + chunk], look)
                if seen is None:
                    return None
                if self._options.on_prefill:
                    self._options.on_prefill(len(session.tokens) - known, len(tokens) - known)
            session.end_prompt(*last)
            return seen
        finally:
            self.reading = None

    def _look(self, logits: Row) -> Seen:
        """Take what the answer needs of logits, which are valid only during this call."""
        return Seen(self._sampler.look(logits), logits.copy() if self._options.logprobs else None)

    def _piece(self, token: int, seen: Seen, is_full: bool) -> Piece:
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
        text, calls = self._calls.push(text, ended=reason is not None)
        if reason == "stop" and self._calls.count:
            reason = "tool_calls"
        stats = self.stats if reason else None
        return Piece(text, token, reason, stats, self._logprob(seen.logits, token), calls)

    def _shift(self) -> bool:
        """Drop the oldest part of the conversation, if the options and its length allow it."""
        self._left = self._window.shift(self._written)
        return self._left is not None

    def _logprob(self, logits: Row | None, token: int) -> TokenLogprob | None:
        if logits is None:
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
