"""Generate an answer: read the prompt in chunks, then generate one token at a time.

An answer is a coroutine: it asks for tokens to be run, and is resumed with what it saw of their logits.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from pteron.engine.staging import Pending
from pteron.errors import PteronError
from pteron.llm.candidates import Candidates
from pteron.llm.chat_template import Message
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
from pteron.llm.tools import CallDelta, CallReader, ToolCall, complete_calls

if TYPE_CHECKING:
    from pteron.llm.model import LanguageModel

Prompt: TypeAlias = str | Sequence[int] | Sequence[Message]
Prompts: TypeAlias = list[str] | list[list[int]] | list[list[Message]] | list[Prompt]


def is_many(prompt: Prompt | Prompts) -> bool:
    """Whether it is a list of prompts: of texts, of lists of tokens, or of lists of messages."""
    if isinstance(prompt, str) or not len(prompt):
        return False
    return isinstance(prompt[0], Sequence)


def is_messages(prompt: Prompt) -> bool:
    return not isinstance(prompt, str) and len(prompt) > 0 and isinstance(prompt[0], Mapping)


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


@dataclass(frozen=True, slots=True)
class Generation:
    """A whole answer. `str(generation)` is its text.

    Attributes:
        text: The text.
        tokens: The generated tokens.
        finish_reason: Why it ended. `"stop"`: the model or a stop string ended it. `"length"`: the limit or
            the end of the context. `"tool_calls"`: it ends with tool calls. `"cancelled"`: `Stream.cancel`.
        stats: Counts and times.
        logprobs: The log probability of each token, with `logprobs=True`.
        tool_calls: The complete tool calls.
    """

    text: str
    tokens: list[int] = field(repr=False)
    finish_reason: FinishReason
    stats: Stats
    logprobs: list[TokenLogprob] = field(default_factory=list, repr=False)
    tool_calls: list[ToolCall] = field(default_factory=list)

    def __str__(self) -> str:
        return self.text


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


class Stream(Iterator[Piece]):
    """An iterator of pieces. `LanguageModel.stream` makes it.

    It may be dropped at any time. Leaving a `with` block closes it. The model and its sessions stay usable.
    """

    # An answer does not run the program itself: it asks for a `Run`. `__next__` runs one stream alone. A
    # `Batch` runs many streams together.

    def __init__(
        self,
        model: LanguageModel,
        window: ContextWindow,
        sampling: Sampling,
        options: AnswerOptions,
        session: Session | None = None,
    ) -> None:
        self._window = window
        self._decoder = model.decoder
        self._max_length = model.max_length
        self._answer = Answer(model, window, sampling, options)
        # The generator has only a weak reference to its stream, so that a dropped stream is closed at once.
        self._steps = self._answer.steps(session, weakref.ref(self))
        self._in_use = threading.Lock()  # held by whoever runs it
        self._next: tuple[Run, Pending[Seen] | None] | None = None  # a run that may have been started
        self.session = session  # None: one that is borrowed when the answer begins

    @property
    def prompt(self) -> list[int]:
        """The tokens that the answer follows."""
        return self._window.tokens

    @property
    def messages(self) -> list[dict[str, Any]] | None:
        """The messages that the answer follows, without those that were dropped. None if there are none."""
        return self._window.messages

    def __next__(self) -> Piece:
        with self._in_use:
            try:
                item = self._finish_run() if self._next else self.resume()
                while isinstance(item, Run):
                    self._next = item.first(self._max_length), None
                    item = self._finish_run()
                if not item.finish_reason:
                    self._start_next()
                return item
            except BaseException:
                self._next = None
                self._steps.close()
                raise

    def _start_next(self) -> None:
        """Start the run after a piece. The GPU then works while the caller shows the piece.

        A run without a reader does no harm: it writes one position of the KV state, which is written again.
        """
        item = self.resume()
        assert isinstance(item, Run), "a run follows every piece but the last"
        run = item.first(self._max_length)
        self._next = run, None
        if not self.is_cancelled:
            with suppress(PteronError):  # the next piece tries again, and raises it
                self._next = run, self._decoder.start(run.segment)

    def _finish_run(self) -> Piece | Run:
        assert self._next is not None
        (run, started), self._next = self._next, None
        if self.is_cancelled:
            return self.resume(None)
        seen = (started or self._decoder.start(run.segment)).result()
        run.finish()
        return self.resume(seen)

    def cancel(self) -> None:
        """End the answer with the reason "cancelled". Any thread may call it, also during the prompt."""
        self._answer.cancelled.set()

    def close(self) -> bool:
        """End the stream now, without another piece.

        Returns:
            False if another thread is using the stream: then it is only cancelled.
        """
        self.cancel()
        if not self._in_use.acquire(blocking=False):
            return False
        try:
            self._next = None
            self._steps.close()
        finally:
            self._in_use.release()
        return True

    @property
    def stats(self) -> Stats:
        """Counts and times so far."""
        return self._answer.stats

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # -- for a `Batch` ----------------------------------------------------------------------------

    def take(self) -> None:
        """Keep the stream from others until `release`."""
        if not self._in_use.acquire(blocking=False):
            raise PteronError("the stream is in use: make another one for this answer")

    def release(self) -> None:
        self._in_use.release()
        self.close()

    def resume(self, seen: Seen | None = None) -> Piece | Run:
        """Begin the answer, or go on after a piece or a `Run`.

        seen: of the logits after the tokens that were run. None after a `Run`: nothing was run, because the
            answer is cancelled.
        """
        if self._next is not None and not self.is_cancelled:  # `__next__` has given a piece before
            (run, _), self._next = self._next, None
            return run
        self._next = None
        return self._steps.send(seen)

    @property
    def is_cancelled(self) -> bool:
        return self._answer.cancelled.is_set()

    @property
    def reading(self) -> Sequence[int] | None:
        """The tokens that are being read, of which the session knows a part. None if it reads nothing."""
        return self._answer.reading


Steps: TypeAlias = Generator[Run, Seen | None, Seen | None]


class Answer:
    """Generates one answer. It asks for runs, and gives pieces."""

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
        self, session: Session | None, stream: weakref.ref[Stream]
    ) -> Generator[Piece | Run, Seen | None, None]:
        """Runs of the prompt, then a piece and a run for each token. The last piece has a reason."""
        self._clock.start()
        try:
            yield from self._steps(session, stream)
        except WaitCancelled:
            yield Piece("", None, "cancelled", self.stats)

    def _steps(
        self, session: Session | None, stream: weakref.ref[Stream]
    ) -> Generator[Piece | Run, Seen | None, None]:
        sessions, prompt = self._model.sessions, self._window.tokens
        source = nullcontext(session) if session else sessions.borrow(self._model, prompt, self.cancelled)
        with source as taken, taken.turn(stream, self.cancelled):
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


def collect(pieces: Iterable[Piece]) -> Generation:
    """The whole answer. A stream is run to its end."""
    texts, tokens, logprobs = [], [], []
    calls: list[CallDelta] = []
    for piece in pieces:
        texts.append(piece.text)
        calls += piece.calls
        if piece.token is not None:
            tokens.append(piece.token)
        if piece.logprob is not None:
            logprobs.append(piece.logprob)
        if piece.finish_reason and piece.stats:
            made = complete_calls(calls)
            return Generation("".join(texts), tokens, piece.finish_reason, piece.stats, logprobs, made)
    raise PteronError("the stream was closed before its end")
