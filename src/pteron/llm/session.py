"""Conversations: each has its KV state, all share one copy of the weights."""

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
    """One conversation. A prompt that begins like what it already holds only costs what is new.

    Starting a turn ends an earlier one that was left unfinished.
    """

    def __init__(self, model: LanguageModel) -> None:
        self._model = model
        self._decoder: Decoder = model.decoder
        self._state = self._decoder.new_state()
        self._turn: weakref.ref[Stream] | None = None
        self._lock = threading.RLock()
        self.tokens: list[int] = []  # what the KV state holds

    def stream(self, prompt: Prompt, *, allow_special: bool = False, **options: Unpack[Options]) -> Stream:
        """The answer to the whole conversation so far, piece by piece."""
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
        raise TypeError("a session lives on one GPU and cannot be pickled: make another from the model")

    # -- what generation uses -------------------------------------------------------------------

    @contextmanager
    def turn(self, stream: weakref.ref[Stream]) -> Iterator[None]:
        """Have the session to oneself."""
        with self._lock:
            self._end_turn()
            self._turn = stream
            if not self._decoder.method.owns(self._state):  # it was lost with its device
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
        """How many tokens of a prompt need not be run again. Its last one always is: it gives the logits."""
        most = min(len(self.tokens), len(prompt) - 1)
        return next((i for i in range(most) if self.tokens[i] != prompt[i]), most)

    def rewind(self, length: int) -> None:
        """Keep the first tokens. What the KV state holds beyond them is overwritten before it is read."""
        del self.tokens[length:]

    def advance(self, tokens: Sequence[int]) -> np.ndarray[Any, Any]:
        """Run tokens after those held; the logits that follow. Unless it succeeds, nothing has changed."""
        logits = self._decoder.logits(tokens, len(self.tokens), self._state)
        self.tokens.extend(tokens)
        return logits


class SessionPool:
    """Sessions for those who did not bring one: an idle one that already holds most of the prompt."""

    def __init__(self, model: LanguageModel) -> None:
        self._model = model
        self._idle: list[Session] = []
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """How many are idle."""
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
