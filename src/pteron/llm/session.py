"""Conversations: each has its own KV cache, and all share one copy of the weights."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from pteron.errors import PteronError
from pteron.llm.decoder import Decoder, Row, Segment
from pteron.llm.options import Options
from pteron.llm.session_file import SavedSession, read_session, write_session

if TYPE_CHECKING:
    from pteron.llm.answer import Answer
    from pteron.llm.generate import Generation, Prompt, Stream
    from pteron.llm.model import LanguageModel

T = TypeVar("T")


class Session:
    """One conversation. `LanguageModel.session` makes it.

    Pass the whole conversation each time. Only the part after the common beginning is computed: the rest is
    in the KV cache. A new turn ends an earlier one that is not finished. Between two turns, another session
    may need the KV cache: then its contents are kept on the host.

    Attributes:
        tokens: The tokens in the KV cache.
        messages: The messages of the last prompt and its answer, if the prompt was messages.
    """

    def __init__(self, model: LanguageModel) -> None:
        self._model = model
        self._decoder: Decoder = model.decoder
        self._state = model.sessions.new_state(model.decoder)
        self._parked: list[bytes] | None = None  # the contents of a KV cache that was given away
        self._turn: weakref.ref[Answer] | None = None
        self._lock = threading.RLock()
        self.thread: int | None = None  # the thread that is answering
        self.last_used = time.monotonic()
        self._end: tuple[int, Row] | None = None  # the length of the last prompt, and the logits after it
        self.tokens: list[int] = []
        self.messages: list[dict[str, Any]] = []
        model.sessions.add(self)

    def stream(self, prompt: Prompt, *, allow_special: bool = False, **options: Unpack[Options]) -> Stream:
        """Stream the answer to the whole conversation. See `LanguageModel.stream`."""
        return self._model.stream(prompt, session=self, allow_special=allow_special, **options)

    def generate(
        self, prompt: Prompt, *, allow_special: bool = False, **options: Unpack[Options]
    ) -> Generation:
        """Generate the answer to the whole conversation. See `LanguageModel.generate`."""
        return self._model.generate(prompt, session=self, allow_special=allow_special, **options)

    def reset(self) -> None:
        """Forget the conversation."""
        self._end_turn()
        self.rewind(0)
        self.messages = []

    def save(self, path: str | Path, *, kv_cache: bool = True) -> None:
        """Write the conversation to a file. An unfinished turn is ended.

        `LanguageModel.load_session` reads the file.

        Args:
            path: The file. It is replaced at once: it is never half written.
            kv_cache: Also write the tokens and their KV cache, which are most of the file. Without them, the
                messages are read again when the conversation goes on.
        """
        with self._lock:
            self._end_turn()
            self._unpark()
            has_state = kv_cache and self._decoder.method.owns(self._state)
            tokens = list(self.tokens) if has_state else []
            blocks = self._state.read(self._decoder.positions(len(tokens)))
            write_session(path, SavedSession(self._model.identity, tokens, self.messages, blocks))

    @classmethod
    def load(cls, model: LanguageModel, path: str | Path) -> Session:
        """See `LanguageModel.load_session`."""
        session = cls(model)
        state, positions = session._state, session._decoder.positions
        try:
            saved = read_session(path, model.identity, lambda count: state.sizes(positions(count)))
            if saved.messages and len(saved.tokens) > model.context_length:
                saved = replace(saved, tokens=[], blocks=state.read(positions(0)))  # they are read again
            model.encode(saved.tokens)  # refuses tokens that the model does not have
            state.write(saved.blocks, positions(len(saved.tokens)))
        except BaseException:
            session.close()
            raise
        session.tokens, session.messages = saved.tokens, saved.messages
        return session

    def close(self) -> None:
        """Free the KV cache."""
        self.reset()
        self._parked = None
        self._state.close()
        self._model.sessions.tell()

    def __reduce__(self) -> Any:
        raise TypeError("a session belongs to one GPU and cannot be pickled: make a new one from the model")

    # -- for generation ---------------------------------------------------------------------------

    @contextmanager
    def turn(self, answer: weakref.ref[Answer], cancelled: threading.Event) -> Iterator[None]:
        """Exclusive use of the session for one turn. It may wait for a KV cache, until it is cancelled."""
        with self._lock:
            self._end_turn()
            self._turn, self.thread = answer, threading.get_ident()
        try:
            with self._lock:
                if not self._decoder.method.owns(self._state):  # the state was lost with its device
                    self._state = self._model.sessions.new_state(self._decoder, cancelled)
                    self._parked = None
                    self.rewind(0)
                self._unpark(cancelled)
            yield
        finally:
            if self._turn is answer:
                self._turn = self.thread = None
                self.last_used = time.monotonic()
                self._model.sessions.tell()

    @property
    def has_state(self) -> bool:
        return not self._state.closed and self._decoder.method.owns(self._state)

    @property
    def can_park(self) -> bool:
        return self.thread is None and self.has_state

    def park(self) -> bool:
        """Give up the KV cache until the next turn. Its contents are kept. False if it is in use."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            if not self.can_park:
                return False
            self._parked = self._state.read(self._decoder.positions(len(self.tokens)))
            self._state.close()
            return True
        finally:
            self._lock.release()

    def _unpark(self, cancelled: threading.Event | None = None) -> None:
        """Get a KV cache again, if this one was given up."""
        if self._parked is None:
            return
        state = self._model.sessions.new_state(self._decoder, cancelled)
        if self.tokens:
            state.write(self._parked, self._decoder.positions(len(self.tokens)))
        self._state, self._parked = state, None

    def _end_turn(self) -> None:
        earlier = None if self._turn is None else self._turn()
        if earlier is not None and not earlier.close():
            raise PteronError(
                "the session is answering in another thread: cancel that answer, or use another session"
            )

    def common_prefix(self, prompt: Sequence[int]) -> int:
        """How many tokens of a prompt need not be run again. The last is run if its logits are not known."""
        known = common_length(self.tokens, prompt)
        has_logits = self._end is not None and self._end[0] == len(prompt)
        return known if known < len(prompt) or has_logits else len(prompt) - 1

    def rewind(self, length: int) -> None:
        """Keep only the first tokens. The rest of the KV cache is overwritten before it is read."""
        del self.tokens[length:]
        if self._end is not None and length < self._end[0]:
            self._end = None

    def end_prompt(self, logits: Row) -> None:
        """The tokens so far are a prompt. The same prompt then has the same logits again, bit by bit."""
        self._end = len(self.tokens), logits

    @property
    def end_logits(self) -> Row:
        """The logits after the last prompt."""
        assert self._end is not None
        return self._end[1]

    def adopt(self, other: Session, prompt: Sequence[int]) -> None:
        """Copy the beginning of a prompt from another session, if that knows more of it.

        The other session may be in use: whoever changes its KV cache needs the device's lock, too.
        """
        with self._decoder.program.device.lock:
            known, more = self.common_prefix(prompt), other.common_prefix(prompt)
            if more > known and self.has_state and other.has_state:
                self.rewind(known)
                self._state.copy_from(other._state, self._decoder.positions(more))
                self.tokens.extend(prompt[known:more])
                if more == len(prompt):
                    self._end = other._end

    def segment(self, tokens: Sequence[int], look: Callable[[Row], T]) -> Segment[T]:
        """More tokens, as a part of a call of the program."""
        return Segment(tokens, len(self.tokens), self._state, look)


def common_length(a: Sequence[int], b: Sequence[int]) -> int:
    """How many first tokens are the same."""
    most = min(len(a), len(b))
    if a[:most] == b[:most]:  # fast
        return most
    return next((place for place in range(most) if a[place] != b[place]), most)
