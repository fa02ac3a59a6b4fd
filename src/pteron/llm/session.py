"""Conversations: each has its own KV state, and all share one copy of the weights."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, Unpack

import numpy as np

from pteron.errors import PteronError
from pteron.gpu.state import State
from pteron.llm.decoder import Decoder, Segment
from pteron.llm.options import Options
from pteron.llm.session_file import SavedSession, read_session, write_session

if TYPE_CHECKING:
    from pteron.llm.generate import Generation, Prompt, Stream
    from pteron.llm.model import LanguageModel

Logits: TypeAlias = np.ndarray[Any, Any]


class Session:
    """One conversation. `LanguageModel.session` makes it.

    Pass the whole conversation each time. Only the part after the common beginning is computed: the rest is
    in the KV state. A new turn ends an earlier one that is not finished.

    Attributes:
        tokens: The tokens in the KV state.
        messages: The messages of the last prompt and its answer, if the prompt was messages.
    """

    def __init__(self, model: LanguageModel) -> None:
        self._model = model
        self._decoder: Decoder = model.decoder
        self._state = model.sessions.new_state(model.decoder)
        self._turn: weakref.ref[Stream] | None = None
        self._lock = threading.RLock()
        self.tokens: list[int] = []
        self.messages: list[dict[str, Any]] = []

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
        self.tokens.clear()
        self.messages = []

    def save(self, path: str | Path) -> None:
        """Write the messages, the tokens and their KV state to a file. An unfinished turn is ended.

        `LanguageModel.load_session` reads the file. It is about as large as the KV state of its tokens.
        """
        with self._lock:
            self._end_turn()
            tokens = list(self.tokens) if self._decoder.method.owns(self._state) else []
            blocks = self._state.read(self._decoder.positions(len(tokens)))
            write_session(path, SavedSession(self._model.identity, tokens, self.messages, blocks))

    @classmethod
    def load(cls, model: LanguageModel, path: str | Path) -> Session:
        """See `LanguageModel.load_session`."""
        session = cls(model)
        state, positions = session._state, session._decoder.positions
        try:
            saved = read_session(path, model.identity, lambda count: state.sizes(positions(count)))
            model.encode(saved.tokens)  # refuses tokens that the model does not have
            state.write(saved.blocks, positions(len(saved.tokens)))
        except BaseException:
            session.close()
            raise
        session.tokens, session.messages = saved.tokens, saved.messages
        return session

    def close(self) -> None:
        """Free the KV state."""
        self.reset()
        self._state.close()

    def __reduce__(self) -> Any:
        raise TypeError("a session belongs to one GPU and cannot be pickled: make a new one from the model")

    # -- for generation ---------------------------------------------------------------------------

    @contextmanager
    def turn(self, stream: weakref.ref[Stream]) -> Iterator[None]:
        """Exclusive use of the session for one turn."""
        with self._lock:
            self._end_turn()
            self._turn = stream
            if not self._decoder.method.owns(self._state):  # the state was lost with its device
                self._state = self._model.sessions.new_state(self._decoder)
                self.tokens.clear()
        try:
            yield
        finally:
            if self._turn is stream:
                self._turn = None

    def _end_turn(self) -> None:
        earlier = None if self._turn is None else self._turn()
        if earlier is not None and not earlier.close():
            raise PteronError(
                "the session is answering in another thread: cancel that answer, or use another session"
            )

    def common_prefix(self, prompt: Sequence[int]) -> int:
        """How many tokens of a prompt need not be run again. The last is always run: it gives the logits."""
        return min(common_length(self.tokens, prompt), len(prompt) - 1)

    def rewind(self, length: int) -> None:
        """Keep only the first tokens. The rest of the KV state is overwritten before it is read."""
        del self.tokens[length:]

    def adopt(self, other: Session, prompt: Sequence[int]) -> None:
        """Copy the beginning of a prompt from another session, if that knows more of it.

        The other session may be in use: whoever changes its KV state needs the device's lock, too.
        """
        owns = self._decoder.method.owns
        with self._decoder.program.device.lock:
            known, more = self.common_prefix(prompt), other.common_prefix(prompt)
            if more > known and owns(self._state) and owns(other._state):
                self.rewind(known)
                self._state.copy_from(other._state, self._decoder.positions(more))
                self.tokens.extend(prompt[known:more])

    def advance(self, tokens: Sequence[int]) -> Logits:
        """Run more tokens. Returns the logits after them. If it fails, nothing has changed."""
        logits = self._decoder.logits(tokens, len(self.tokens), self._state)
        self.tokens.extend(tokens)
        return logits

    def segment(self, tokens: Sequence[int]) -> Segment:
        """More tokens, as a part of a call for several sessions."""
        return Segment(tokens, len(self.tokens), self._state)


def advance_together(decoder: Decoder, parts: Sequence[tuple[Session, Sequence[int]]]) -> list[Logits]:
    """Run more tokens of several sessions in one call. If it fails, nothing has changed."""
    logits = decoder.logits_many([session.segment(tokens) for session, tokens in parts])
    for session, tokens in parts:
        session.tokens.extend(tokens)
    return logits


def common_length(a: Sequence[int], b: Sequence[int]) -> int:
    """How many first tokens are the same."""
    most = min(len(a), len(b))
    if a[:most] == b[:most]:  # fast
        return most
    return next((place for place in range(most) if a[place] != b[place]), most)


class SessionPool:
    """Sessions for requests without one. What another session knows of a prompt is not computed again."""

    def __init__(self) -> None:
        self._idle: list[Session] = []
        self._busy: list[Session] = []
        self._lock = threading.RLock()

    def __len__(self) -> int:
        """The number of idle sessions."""
        return len(self._idle)

    @contextmanager
    def borrow(self, model: LanguageModel, prompt: Sequence[int]) -> Iterator[Session]:
        session = self._take(model, prompt)
        try:
            yield session
        finally:
            with self._lock:
                self._busy.remove(session)
                self._idle.append(session)

    def new_state(self, decoder: Decoder) -> State:
        """KV caches for a session. If there is no room, idle sessions are closed, the oldest first."""
        while True:
            try:
                return decoder.new_state()
            except PteronError:
                with self._lock:
                    if not self._idle:
                        raise
                    self._idle.pop(0).close()

    def known(self, prompt: Sequence[int]) -> int:
        """How many first tokens of a prompt are in a KV state."""
        with self._lock:
            return max((s.common_prefix(prompt) for s in (*self._idle, *self._busy)), default=0)

    def _take(self, model: LanguageModel, prompt: Sequence[int]) -> Session:
        """The idle session that knows the most, if most of what it knows is of use. Else the oldest one:
        then the session that knows the most keeps its conversation, and the beginning is copied.
        """

        def knows(session: Session) -> int:
            return session.common_prefix(prompt)

        with self._lock:
            best = max((*self._idle, *self._busy), key=knows, default=None)
            if best in self._idle and 2 * knows(best) >= len(best.tokens):
                session = best
            else:
                session = self._idle[0] if self._idle else Session(model)
            if session in self._idle:
                self._idle.remove(session)
            self._busy.append(session)
        if best is not None and best is not session:
            session.adopt(best, prompt)
        return session

    def close(self) -> None:
        with self._lock:
            for session in self._idle:
                session.close()
            self._idle.clear()
