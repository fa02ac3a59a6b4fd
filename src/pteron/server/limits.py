"""The limits for clients of the server."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes are in bytes, times in seconds.

    body: the largest request; bodies: what all requests that are still arriving may hold together.
    header_seconds: for the head of a request; body_seconds: for the rest of it.
    write_seconds: for a client to read some of an answer that is ready.
    connections: the maximum; beyond it, the one that has waited longest for its request is closed.
    """

    body: int = 4 << 20
    bodies: int = 64 << 20
    header_seconds: float = 10
    body_seconds: float = 30
    write_seconds: float = 30
    connections: int = 1000
