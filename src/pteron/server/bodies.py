"""The bodies of requests, as they arrive."""

from __future__ import annotations

import asyncio

from starlette.requests import ClientDisconnect, Request

from pteron.server.limits import Limits
from pteron.server.requests import ApiError


class ClientLeft(Exception):
    """The client closed its connection before its request was complete."""


class Bodies:
    """Reads bodies, each within a size and a time, all together within a size.

    When they hold too much together, the one that has been arriving for the longest time is given up: clients
    that send slowly on purpose make no other client fail.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._arriving: dict[asyncio.Timeout, int] = {}  # bytes so far, oldest first

    async def read(self, http: Request) -> bytes:
        """The whole body. ApiError if it is too large or too slow, ClientLeft if the client goes."""
        self._check_size(int(http.headers.get("content-length", 0)))
        try:
            async with asyncio.timeout(self._limits.body_seconds) as deadline:
                self._arriving[deadline] = 0
                try:
                    return await self._collect(http, deadline)
                finally:
                    self._arriving.pop(deadline, None)
        except TimeoutError:
            raise ApiError(408, "the body did not arrive in time") from None
        except ClientDisconnect:
            raise ClientLeft from None

    async def _collect(self, http: Request, deadline: asyncio.Timeout) -> bytes:
        body = bytearray()
        async for chunk in http.stream():
            body += chunk
            self._check_size(len(body))
            if deadline in self._arriving:
                self._arriving[deadline] = len(body)
            self._give_up_oldest()
        return bytes(body)

    def _give_up_oldest(self) -> None:
        while sum(self._arriving.values()) > self._limits.bodies:
            oldest = next(iter(self._arriving))
            del self._arriving[oldest]
            oldest.reschedule(0)

    def _check_size(self, size: int) -> None:
        if size > self._limits.body:
            raise ApiError(413, f"the body is larger than {self._limits.body} bytes")
