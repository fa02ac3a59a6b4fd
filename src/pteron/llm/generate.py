"""What users hold of an answer: a stream of its pieces, or the whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from pteron.engine.staging import Pending
from pteron.errors import PteronError
from pteron.llm.answer import Answer, Piece, Run, Seen
from pteron.llm.chat_template import Message
from pteron.llm.logprobs import TokenLogprob
from pteron.llm.stats import FinishReason, Stats
from pteron.llm.tools import CallDelta, ToolCall, complete_calls

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


class Stream(Iterator[Piece]):
    """An iterator of pieces. `LanguageModel.stream` makes it.

    It may be dropped at any time. Leaving a `with` block closes it. The model and its sessions stay usable.
    """

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._next: tuple[Run, Pending[Seen] | None] | None = None  # a run that may have been started

    @property
    def prompt(self) -> list[int]:
        """The tokens that the answer follows."""
        return self._answer.window.tokens

    @property
    def messages(self) -> list[dict[str, Any]] | None:
        """The messages that the answer follows, without those that were dropped. None if there are none."""
        return self._answer.window.messages

    def __next__(self) -> Piece:
        answer = self._answer
        with answer.lock:
            try:
                item = self._finish_run() if self._next else answer.resume()
                while isinstance(item, Run):
                    self._next = item.first(answer.decoder.max_length), None
                    item = self._finish_run()
                if not item.finish_reason:
                    self._start_next()
                return item
            except BaseException:
                self._next = None
                answer.end()
                raise

    def _start_next(self) -> None:
        """Start the run after a piece. The GPU then works while the caller shows the piece.

        A run without a reader does no harm: it writes one position of the KV cache, which is written again.
        """
        item = self._answer.resume()
        assert isinstance(item, Run), "a run follows every piece but the last"
        run = item.first(self._answer.decoder.max_length)
        self._next = run, None
        if not self._answer.is_cancelled:
            with suppress(PteronError):  # the next piece tries again, and raises it
                self._next = run, self._answer.decoder.start(run.segment)

    def _finish_run(self) -> Piece | Run:
        assert self._next is not None
        (run, started), self._next = self._next, None
        if self._answer.is_cancelled:
            return self._answer.resume()
        seen = (started or self._answer.decoder.start(run.segment)).result()
        run.finish()
        return self._answer.resume(seen)

    def cancel(self) -> None:
        """End the answer with the reason "cancelled". Any thread may call it, also during the prompt."""
        self._answer.cancel()

    def close(self) -> None:
        """End the stream now, without another piece. If another thread is using it, it is only cancelled."""
        self._answer.close()

    @property
    def stats(self) -> Stats:
        """Counts and times so far."""
        return self._answer.stats

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


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
