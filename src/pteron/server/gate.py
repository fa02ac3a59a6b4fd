"""Check the host name and the API key of requests."""

from __future__ import annotations

import hmac
import re

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from pteron.server.chat_page import PATHS
from pteron.server.requests import ApiError

LOOPBACK = ("localhost", "127.0.0.1", "::1")
PUBLIC = {"/health", *PATHS}  # without a key: the page has no data, and asks for the key itself
HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+))(?::\d{1,5})?")


class Gate:
    """Accepts only requests for its own host names that have the API key."""

    def __init__(self, app: ASGIApp, api_key: str | None, hosts: tuple[str, ...] | None) -> None:
        self._app = app
        self._key = api_key
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        error = self._refusal(Request(scope)) if scope["type"] == "http" else None
        answer = JSONResponse(error.body, error.status) if error else self._app
        await answer(scope, receive, send)

    def _refusal(self, http: Request) -> ApiError | None:
        return self._wrong_name(http.headers.get("host", "")) or self._wrong_key(http)

    def _wrong_name(self, header: str) -> ApiError | None:
        host = HOST.fullmatch(header)
        if host is None:
            return ApiError(400, "the Host header is missing or malformed")
        name = (host[1] or host[2]).lower()
        if self._hosts is not None and name not in self._hosts:
            return ApiError(403, f"this server does not answer to the name {name!r}")
        return None

    def _wrong_key(self, http: Request) -> ApiError | None:
        if self._key is None or http.scope["path"] in PUBLIC:
            return None
        given = http.headers.get("authorization", "").removeprefix("Bearer ")
        if not hmac.compare_digest(given.encode(), self._key.encode()):
            return ApiError(401, "the API key is missing or wrong", code="invalid_api_key")
        return None
