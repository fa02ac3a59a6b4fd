"""uvicorn's HTTP server, with limits for clients that keep it waiting."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import signal
import socket
from types import FrameType
from typing import Any

import h11
import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from pteron.server.catalog import Catalog
from pteron.server.limits import Limits
from pteron.server.request_log import LogFormat, log_config
from pteron.server.requests import ApiError

log = logging.getLogger("uvicorn.error")


class Server(uvicorn.Server):
    """Closes connections after a timeout.

    SIGTERM lets it finish the running answers, for a while. Ctrl-C and a second signal end them.
    """

    def __init__(self, app: Starlette, limits: Limits, **options: Any) -> None:
        super().__init__(ServerConfig(app, limits, **options))
        self._catalog: Catalog = app.state.catalog
        self._drain_seconds = limits.drain_seconds

    async def on_tick(self, counter: int) -> bool:
        """uvicorn calls it ten times a second."""
        for connection in list(self.server_state.connections):
            if isinstance(connection, Connection) and connection.is_overdue:
                connection.transport.abort()
        return await super().on_tick(counter)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if sig == signal.SIGTERM and not self.should_exit:
            if count := self._catalog.drain():
                log.info("answers to finish, within %g s: %d", self._drain_seconds, count)
        else:
            self._catalog.stop()
        super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        limit = asyncio.get_running_loop().call_later(self._drain_seconds, self._catalog.stop)
        try:
            await super().shutdown(sockets)
        finally:
            limit.cancel()


def reserved(host: str, port: int) -> list[socket.socket]:
    """Sockets on all addresses of a host. Nobody else gets the port then, and nobody is answered yet.

    Raises OSError if the port is in use, or not allowed.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in dict.fromkeys(found):
            made = socket.socket(family, kind, protocol)
            sockets.append(made)
            if os.name != "nt":  # there it would allow two servers on one port
                made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            made.bind(address)
    except OSError as error:
        for made in sockets:
            made.close()
        raise OSError(error.errno, error.strerror, f"{host}:{port}") from None
    return sockets


class ServerConfig(uvicorn.Config):
    def __init__(
        self,
        app: Starlette,
        limits: Limits,
        log_format: LogFormat = "plain",
        log_level: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(
            app,
            http=Connection,
            ws="none",
            timeout_graceful_shutdown=math.ceil(limits.drain_seconds) + 5,
            access_log=False,  # `RequestLog` says more
            log_config=log_config(log_format, log_level),
            log_level=log_level,
            **options,
        )
        self.limits = limits


class Connection(H11Protocol):
    """A client's connection. It knows since when it waits for the client."""

    def __init__(self, config: ServerConfig, *args: Any, **options: Any) -> None:
        super().__init__(config, *args, **options)
        self.conn = PlainBodies(h11.SERVER)
        self._limits = config.limits
        self._owed_since = self.loop.time()
        self._stalled_since: float | None = None

    @property
    def owes_request(self) -> bool:
        """Whether it is the client's turn: to begin a request, or to send the rest of one."""
        return self.cycle is None or self.cycle.response_complete or self.cycle.more_body

    @property
    def is_overdue(self) -> bool:
        """Whether the client has exceeded a timeout. `Bodies` has its own timeout and error."""
        now = self.loop.time()
        if self._stalled_since is not None:
            return now - self._stalled_since > self._limits.write_seconds
        owes_head = self.cycle is None or self.cycle.response_complete
        return owes_head and now - self._owed_since > self._limits.header_seconds

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) > self._limits.connections:
            self._close_one()

    def _close_one(self) -> None:
        """Close one connection to make room. If all others are being answered, close this one."""
        owing = [c for c in self.connections if isinstance(c, Connection) and c.owes_request]
        oldest = min(owing, key=lambda c: c._owed_since)
        self.connections.discard(oldest)
        oldest.transport.abort()

    def on_response_complete(self) -> None:
        self._owed_since = self.loop.time()
        if self._has_sent_ahead:
            self.transport.close()
        super().on_response_complete()

    @property
    def _has_sent_ahead(self) -> bool:
        """Whether the client began its next request before it had the answer to this one.

        Common clients never do that. Thousands of requests in one packet would keep the event loop busy.
        """
        return self.conn.their_state is h11.DONE and bool(self.conn.trailing_data[0])

    def pause_writing(self) -> None:
        self._stalled_since = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        self._stalled_since = None
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """Refuse data that is not HTTP, with the same error format as other errors."""
        assert isinstance(self.conn, PlainBodies)
        error = ApiError(411, CHUNKED) if self.conn.was_chunked else ApiError(400, "the request is not HTTP")
        body = json.dumps(error.body).encode()
        headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
        answer = h11.Response(status_code=error.status, headers=[*headers, ("Connection", "close")])
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            for event in (answer, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


CHUNKED = "a body in chunks is not taken: send its length in Content-Length"


class PlainBodies(h11.Connection):
    """Refuses bodies in chunks: a megabyte in chunks of one byte keeps the event loop busy for seconds."""

    was_chunked = False

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Request) and any(name == b"transfer-encoding" for name, _ in event.headers):
            self.was_chunked = True
            raise h11.RemoteProtocolError(CHUNKED)
        return event
