"""The sessions of a model. They share the KV caches that it has room for."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pteron.engine.state import State
from pteron.errors import PteronError
from pteron.llm.decoder import Decoder
from pteron.llm.session import Session

if TYPE_CHECKING:
    from pteron.llm.model import LanguageModel

LOOK_AGAIN = 0.2  # seconds: a KV cache may become free without a call of `tell`


class WaitCancelled(Exception):
    """An answer was cancelled while it waited for a KV cache."""


class _Loan:
    """Exists as long as an answer uses a session of the pool."""

    __slots__ = ("__weakref__",)


class SessionPool:
    """All sessions of a model, and those that answer requests without a session.

    What another session knows of a prompt is not computed again. If there are more sessions than KV caches,
    an answer gets the state of a session that is not answering. If all of them are answering, it waits.
    """

    def __init__(self) -> None:
        self._all: weakref.WeakSet[Session] = weakref.WeakSet()
        # Sessions for requests without one, and the loan of each. A session whose loan is gone is idle, also
        # if an interrupt has ended its answer at any line: nobody has to give it back.
        self._lent: dict[Session, weakref.ref[_Loan]] = {}
        self._changed = threading.Condition(threading.RLock())
        self._waiting: set[int] = set()  # threads

    def __len__(self) -> int:
        """The number of idle sessions."""
        return len(self._idle)

    @property
    def _busy(self) -> list[Session]:
        return [session for session, loan in self._lent.items() if loan() is not None]

    @property
    def _idle(self) -> list[Session]:
        """The one that was used the longest ago comes first."""
        found = [session for session, loan in self._lent.items() if loan() is None]
        for session in found:
            session.thread = None
        return sorted(found, key=lambda session: session.last_used)

    def add(self, session: Session) -> None:
        with self._changed:
            self._all.add(session)

    def tell(self) -> None:
        """Tell those who wait that a session has ended its turn, or was closed."""
        with self._changed:
            self._changed.notify_all()

    @contextmanager
    def borrow(
        self, model: LanguageModel, prompt: Sequence[int], cancelled: threading.Event
    ) -> Iterator[Session]:
        """A session for one answer. It may wait for one, until the answer is cancelled."""
        loan = _Loan()
        try:
            yield self._take(model, prompt, cancelled, loan)
        finally:
            del loan  # from here on, the session is idle
            self.tell()

    def new_state(self, decoder: Decoder, cancelled: threading.Event | None = None) -> State:
        """KV caches for a session."""
        with self._changed:
            while True:
                self._wait_for_room(decoder, cancelled)
                try:
                    return decoder.new_state()
                except PteronError:  # perhaps there is less memory than expected
                    if not self._free_one() and decoder.free_states != 0:
                        raise

    def has_room(self, decoder: Decoder) -> bool:
        """Whether a session can have KV caches without waiting for the end of an answer."""
        with self._changed:
            return decoder.free_states != 0 or bool(self._idle) or any(s.can_park for s in self._all)

    def _free_one(self) -> bool:
        """Take the KV caches of a session that is not answering: the one that was used the longest ago."""
        idle = self._idle
        if idle:
            del self._lent[idle[0]]
            idle[0].close()
            return True
        resting = sorted((s for s in self._all if s.can_park), key=lambda s: s.last_used)
        return any(session.park() for session in resting)

    def _wait_for_room(self, decoder: Decoder, cancelled: threading.Event | None) -> None:
        me = threading.get_ident()
        self._waiting.add(me)
        try:
            while not self.has_room(decoder):
                if {s.thread for s in self._all if s.thread is not None and s.has_state} <= self._waiting:
                    raise PteronError(
                        f"all {decoder.slots} KV caches are in use, and no answer in another thread can end: "
                        "finish or close an answer or a state, or load the model with a larger parallel="
                    )
                self._changed.wait(LOOK_AGAIN)
                if cancelled is not None and cancelled.is_set():
                    raise WaitCancelled
        finally:
            self._waiting.discard(me)

    def known(self, prompt: Sequence[int]) -> int:
        """How many first tokens of a prompt are in a KV cache."""
        with self._changed:
            return max((s.common_prefix(prompt) for s in (*self._idle, *self._busy)), default=0)

    def _take(
        self, model: LanguageModel, prompt: Sequence[int], cancelled: threading.Event, loan: _Loan
    ) -> Session:
        """The idle session that knows the most, if most of what it knows is of use. Else the oldest one:
        then the session that knows the most keeps its conversation, and the beginning is copied.
        """

        def knows(session: Session) -> int:
            return session.common_prefix(prompt)

        with self._changed:
            self._wait_for_room(model.decoder, cancelled)
            idle = self._idle
            best = max((*idle, *self._busy), key=knows, default=None)
            if best in idle and 2 * knows(best) >= len(best.tokens):
                session = best
            else:
                session = idle[0] if idle else Session(model)
            self._lent[session] = weakref.ref(loan)
            session.thread = threading.get_ident()
        if best is not None and best is not session:
            session.adopt(best, prompt)
        return session

    def close(self) -> None:
        with self._changed:
            for session in self._idle:
                del self._lent[session]
                session.close()
