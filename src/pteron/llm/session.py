"""Conversations: each has its own KV state, and all share one copy of the weights."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from pteron.errors import PteronError
from pteron.llm.decoder import Decoder
from pteron.llm.options import Options

if TYPE_CHECKING:
    from pteron.llm.generate import Generation, Prompt, Stream
    from pteron.llm.model import LanguageModel


class Session:
    """One conversation. Only the new part of a prompt is run: the common prefix is in the KV state.

    A new turn ends an earlier one that is not finished.
    """

    def __init__(self, model: LanguageModel) -> None:
        self._model = model
        self._decoder: Decoder = model.decoder
        self._state = self._decoder.new_state()
        self._turn: weakref.ref[Stream] | None = None
        self._lock = threading.RLock()
        self.tokens: list[int] = []  # the tokens in the KV state

    def stream(self, prompt: Prompt, *, allow_special: bool = False, **options: Unpack[Options]) -> Stream:
        """Stream the answer to the whole conversation."""
        return self._model.stream(prompt, session=self, allow_special=allow_special, **options)

    def generate(
        self, prompt: Prompt, *, allow_special: bool = False, **options: Unpack[Options]
    ) -> Generation:
        return self._model.generate(prompt, session=self, allow_special=allow_special, **options)

    def reset(self) -> None:
        """Forget the conversation."""
        self._end_turn()
        self.tokens.clear()

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
                self._state = self._decoder.new_state()
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
        most = min(len(self.tokens), len(prompt) - 1)
        return next((i for i in range(most) if self.tokens[i] != prompt[i]), most)

    def rewind(self, length: int) -> None:
        """Keep only the first tokens. The rest of the KV state is overwritten before it is read."""
        del self.tokens[length:]

    def advance(self, tokens: Sequence[int]) -> np.ndarray[Any, Any]:
        """Run more tokens. Returns the logits after them. If it fails, nothing has changed."""
        logits = self._decoder.logits(tokens, len(self.tokens), self._state)
        self.tokens.extend(tokens)
        return logits


class SessionPool:
    """Sessions for requests without one: an idle session with the longest common prefix is reused."""

    def __init__(self, model: LanguageModel) -> None:
        self._model = model
        self._idle: list[Session] = []
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """The number of idle sessions."""
        return len(self._idle)

    @contextmanager
    def borrow(self, prompt: Sequence[int]) -> Iterator[Session]:
        session = self._take(prompt)
        try:
            yield session
        finally:
            with self._lock:
                self._idle.append(session)

    def _take(self, prompt: Sequence[int]) -> Session:
        with self._lock:
            if self._idle:
                best = max(self._idle, key=lambda session: session.common_prefix(prompt))
                self._idle.remove(best)
                return best
        return Session(self._model)

    def close(self) -> None:
        with self._lock:
            for session in self._idle:
                session.close()
            self._idle.clear()
