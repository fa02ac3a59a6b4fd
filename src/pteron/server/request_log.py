"""One line in the log for each request: its id, its model, its tokens and its times."""

from __future__ import annotations

import json
import logging
import re
import time
import uuid
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pteron.llm import Piece, Stats

LogFormat: TypeAlias = Literal["plain", "json"]

NAME = "pteron.requests"
SAFE_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")

log = logging.getLogger(NAME)


@dataclass(slots=True)
class RequestRecord:
    """What is logged of a request. The text of prompts and answers is not."""

    request_id: str
    method: str
    path: str
    status: int | None = None  # None: the client left before it was sent
    seconds: float = 0.0
    model: str | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    time_to_first_token: float | None = None
    finish_reasons: list[str] = field(default_factory=list)
    began: float = field(default_factory=time.perf_counter)

    def add(self, piece: Piece) -> None:
        """A piece of an answer to this request."""
        if self.time_to_first_token is None:
            self.time_to_first_token = self._elapsed()
        self.generated_tokens += piece.token is not None
        if piece.finish_reason:
            self.finish_reasons.append(piece.finish_reason)
        if piece.stats:
            self.add_prompt(piece.stats)

    def add_prompt(self, stats: Stats) -> None:
        self.prompt_tokens = stats.prompt_tokens
        self.cached_tokens = max(self.cached_tokens, stats.cached_tokens)

    def end(self) -> None:
        self.seconds = self._elapsed()

    def _elapsed(self) -> float:
        return round(time.perf_counter() - self.began, 6)

    def as_json(self) -> dict[str, Any]:
        """The fields that are known."""
        fields = asdict(self)
        del fields["began"]
        if self.model is None:
            for name in ("prompt_tokens", "cached_tokens", "generated_tokens"):
                del fields[name]
        return {name: value for name, value in fields.items() if value not in (None, [])}

    def __str__(self) -> str:
        line = f"{self.method} {self.path} {self.status or 'left'} in {self.seconds:.3f} s, {self.request_id}"
        if self.model is None:
            return line
        line += f", {self.model}"
        if self.time_to_first_token is not None:
            line += (
                f": {self.prompt_tokens} tokens in the prompt ({self.cached_tokens} cached), "
                f"{self.generated_tokens} generated, first after {self.time_to_first_token:.3f} s"
            )
        reasons = ", ".join(dict.fromkeys(self.finish_reasons))
        return f"{line}, {reasons}" if reasons else line


_current: ContextVar[RequestRecord | None] = ContextVar("request", default=None)


def current_record() -> RequestRecord:
    """The record of the request that is being answered."""
    return _current.get() or RequestRecord("", "", "")


class RequestLog:
    """Gives each request an id, and logs it when its response has ended.

    The id is the client's X-Request-Id, or a new one. The response has it, too.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get("x-request-id", "")
        identity = given if SAFE_ID.fullmatch(given) else uuid.uuid4().hex
        path = scope["raw_path"].decode("latin-1")  # percent-encoded: it cannot begin a new line in the log
        record = RequestRecord(identity, scope["method"], path)

        async def noting(message: Message) -> None:
            if message["type"] == "http.response.start":
                record.status = message["status"]
                MutableHeaders(scope=message)["x-request-id"] = identity
            await send(message)

        _current.set(record)
        try:
            await self._app(scope, receive, noting)
        except Exception:
            record.status = 500
            raise
        finally:
            record.end()
            log.info("%s", record, extra={"request": record})


class JsonFormatter(logging.Formatter):
    """Each record as one JSON object on one line."""

    def format(self, record: logging.LogRecord) -> str:
        request = getattr(record, "request", None)
        fields = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "message": "request" if request else record.getMessage(),
            **(request.as_json() if request else {}),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False)


def log_config(form: LogFormat, level: str | None) -> dict[str, Any]:
    """How the server logs, for `logging.config.dictConfig`."""
    plain = {"()": "uvicorn.logging.DefaultFormatter", "fmt": "%(levelprefix)s %(message)s"}
    loggers = ("uvicorn", NAME)
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"default": {"()": JsonFormatter} if form == "json" else plain},
        "handlers": {
            "default": {
                "class": "logging.StreamHandler",
                "formatter": "default",
                "stream": "ext://sys.stderr",
            }
        },
        "loggers": {
            name: {"handlers": ["default"], "level": (level or "info").upper(), "propagate": False}
            for name in loggers
        },
    }
