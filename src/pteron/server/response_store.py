"""The conversations that `previous_response_id` continues. They are kept in memory, within bounds."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pteron.server.requests import ApiError

MOST_RESPONSES, MOST_CHARACTERS = 1000, 64 << 20


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """A response, and the messages up to its end, without instructions."""

    body: dict[str, Any]
    messages: Sequence[dict[str, Any]]
    size: int  # in characters


class ResponseStore:
    """The newest responses. Threads may share it."""

    def __init__(self, most: int = MOST_RESPONSES, characters: int = MOST_CHARACTERS) -> None:
        self._most = most
        self._characters = characters
        self._stored: dict[str, StoredResponse] = {}  # the oldest first
        self._size = 0
        self._lock = threading.Lock()

    def add(self, body: dict[str, Any], messages: Sequence[dict[str, Any]]) -> None:
        size = len(json.dumps([body, messages]))
        with self._lock:
            self._stored[body["id"]] = StoredResponse(body, messages, size)
            self._size += size
            while len(self._stored) > self._most or self._size > self._characters:
                self._remove(next(iter(self._stored)))

    def get(self, wanted: str, param: str | None = None) -> StoredResponse:
        with self._lock:
            found = self._stored.get(wanted)
        if found is None:
            message = f"there is no response {wanted!r}: it was not stored, or was removed to make room"
            raise ApiError(404, message, param=param, code="response_not_found")
        return found

    def delete(self, wanted: str) -> None:
        self.get(wanted)
        with self._lock:
            self._remove(wanted)

    def _remove(self, name: str) -> None:
        if name in self._stored:
            self._size -= self._stored.pop(name).size
