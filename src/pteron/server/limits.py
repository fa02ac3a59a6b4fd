"""The limits for clients of the server."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on requests and connections. Sizes are in bytes, times in seconds.

    Attributes:
        body: The largest request.
        bodies: What all requests that are still arriving may hold together.
        header_seconds: How long the head of a request may take.
        body_seconds: How long the rest of a request may take.
        write_seconds: How long a client may take to read a part of its answer.
        connections: The maximum number. Beyond it, the connection that has waited longest without a complete
            request is closed.
        drain_seconds: How long running answers may take after SIGTERM. Then they end with an error.
    """

    body: int = 4 << 20
    bodies: int = 64 << 20
    header_seconds: float = 10
    body_seconds: float = 30
    write_seconds: float = 30
    connections: int = 1000
    drain_seconds: float = 20
