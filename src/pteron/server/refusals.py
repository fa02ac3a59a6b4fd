"""Errors as responses in OpenAI's format."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

from pteron.errors import DeviceLost, PteronError
from pteron.llm import ContextFull, ToolError
from pteron.llm.bounded import OutOfBounds
from pteron.llm.grammar import TooComplex
from pteron.server.bodies import ClientLeft
from pteron.server.requests import ApiError
from pteron.server.scheduler import ModelLost, QueueFull, SchedulerClosed

CLIENT_LEFT = 499  # nobody reads it
log = logging.getLogger("uvicorn.error")


@contextmanager
def as_api_errors() -> Iterator[None]:
    """Turn errors before an answer begins into OpenAI's format."""
    try:
        yield
    except ContextFull as error:
        raise ApiError(400, str(error), param="messages", code="context_length_exceeded") from error
    except QueueFull as error:
        raise ApiError(429, str(error), code="queue_full", kind="rate_limit_error") from error
    except (SchedulerClosed, ModelLost) as error:
        raise ApiError(503, str(error)) from error
    except OutOfBounds as error:
        raise ApiError(500, str(error)) from error
    except ToolError as error:
        raise ApiError(400, str(error), param=error.param) from error
    except PteronError as error:
        raise ApiError(400, str(error)) from error


def as_api_error(error: Exception) -> ApiError:
    """An error after an answer has begun."""
    if isinstance(error, (SchedulerClosed, ModelLost, DeviceLost)):
        return ApiError(503, str(error))
    if isinstance(error, TooComplex):
        return ApiError(400, str(error), param="response_format")
    return ApiError(500, f"the answer could not be made: {error}")


async def _answer_error(http: HttpRequest, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    headers = {"Retry-After": "1"} if error.status in (429, 503) else None
    return JSONResponse(error.body, error.status, headers)


async def _answer_http_error(http: HttpRequest, error: Exception) -> Response:
    """Paths that do not exist, and methods that a path does not take."""
    assert isinstance(error, HTTPException)
    path = http.scope["path"]
    known = {404: f"there is no {path}", 405: f"{path} does not take {http.method}"}
    answer = ApiError(error.status_code, known.get(error.status_code, error.detail))
    return JSONResponse(answer.body, answer.status, error.headers)


async def _answer_fault(http: HttpRequest, error: Exception) -> Response:
    """An internal error. The log has the traceback."""
    return JSONResponse(ApiError(500, "the server failed").body, 500)


async def _note_client_left(http: HttpRequest, error: Exception) -> Response:
    log.info("a client left before its request to %s was complete", http.scope["path"])
    return Response(status_code=CLIENT_LEFT)


HANDLERS: dict[Any, Any] = {
    ApiError: _answer_error,
    HTTPException: _answer_http_error,
    ClientLeft: _note_client_left,
    Exception: _answer_fault,
}
