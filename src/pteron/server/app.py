"""The endpoints, and what stands between them and the model."""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from types import FrameType
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from pteron.errors import PteronError
from pteron.llm import ContextFull, LanguageModel, Piece, Stream
from pteron.server.requests import ApiError, Request, parse_chat, parse_completion
from pteron.server.responses import ChatForm, CompletionForm, Form, event
from pteron.server.scheduler import QueueFull, Scheduler, SchedulerClosed

CLIENT_LEFT = 499  # nobody reads it; logs do
LOOPBACK = ("localhost", "127.0.0.1", "::1")


def create_app(
    llm: LanguageModel,
    *,
    name: str = "pteron",
    sessions: int = 4,
    queue: int = 16,
    api_key: str | None = None,
    hosts: tuple[str, ...] | None = None,
) -> Starlette:
    """An ASGI application that serves a model.

    sessions: how many answers are made at the same time, each with a KV state of its own.
    queue: how many more may wait; those beyond get status 429.
    api_key: what clients must send; hosts: the Host headers that are answered to (None: any).
    """
    scheduler = Scheduler(sessions, queue)
    endpoints = Endpoints(llm, name, scheduler)
    app = Starlette(
        routes=[
            Route("/v1/models", endpoints.models),
            Route("/v1/models/{model:path}", endpoints.model),
            Route("/v1/chat/completions", endpoints.chat, methods=["POST"]),
            Route("/v1/completions", endpoints.complete, methods=["POST"]),
            Route("/health", endpoints.health),
        ],
        exception_handlers={ApiError: _answer_error},
        lifespan=endpoints.lifespan,
    )
    app.state.scheduler = scheduler
    app.add_middleware(Gate, api_key=api_key, hosts=hosts)
    return app


def serve(llm: LanguageModel, *, host: str = "127.0.0.1", port: int = 8080, **options: Any) -> None:
    """Serve a model until the process is interrupted. The options are those of `create_app`."""
    # A web page can have its browser call a local server by its own name: only local names are answered.
    options.setdefault("hosts", LOOPBACK if host in LOOPBACK else None)
    config = uvicorn.Config(create_app(llm, **options), host=host, port=port, timeout_graceful_shutdown=5)
    with suppress(KeyboardInterrupt):
        Server(config).run()


class Server(uvicorn.Server):
    """When it is told to end, it ends the answers that are being made, and need not wait for them."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.config.app.state.scheduler.stop()  # type: ignore[union-attr]
        super().handle_exit(sig, frame)


class Endpoints:
    def __init__(self, llm: LanguageModel, name: str, scheduler: Scheduler) -> None:
        self.llm = llm
        self.name = name
        self.scheduler = scheduler
        self._card = {"id": name, "object": "model", "created": int(time.time()), "owned_by": "pteron"}

    @asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(self.scheduler.close)

    async def health(self, http: HttpRequest) -> Response:
        return JSONResponse(
            {"status": "ok", "active": self.scheduler.active, "waiting": self.scheduler.waiting}
        )

    async def models(self, http: HttpRequest) -> Response:
        return JSONResponse({"object": "list", "data": [self._card]})

    async def model(self, http: HttpRequest) -> Response:
        wanted = http.path_params["model"]
        if wanted != self.name:
            raise ApiError(404, f"there is no model {wanted!r}", param="model", code="model_not_found")
        return JSONResponse(self._card)

    async def chat(self, http: HttpRequest) -> Response:
        return await self._respond(http, parse_chat, ChatForm(self.name))

    async def complete(self, http: HttpRequest) -> Response:
        return await self._respond(http, parse_completion, CompletionForm(self.name))

    async def _respond(self, http: HttpRequest, parse: Callable[[Any], Request], form: Form) -> Response:
        try:
            request = parse(await http.json())
        except ValueError:
            raise ApiError(400, "the body is not JSON") from None
        pieces = self._begin(request)
        if request.stream:
            return EventStream(pieces, _events(pieces, form, request))
        return await _whole(http, pieces, form, request)

    def _begin(self, request: Request) -> Pieces:
        try:
            return Pieces(self.scheduler, self.llm.stream(request.prompt, **request.options))
        except ContextFull as error:
            raise ApiError(400, str(error), param="messages", code="context_length_exceeded") from error
        except QueueFull as error:
            raise ApiError(429, str(error), code="queue_full", kind="rate_limit_error") from error
        except SchedulerClosed as error:
            raise ApiError(503, str(error)) from error
        except PteronError as error:
            raise ApiError(400, str(error)) from error


class Pieces:
    """The pieces of a stream that the scheduler runs, as the event loop sees them."""

    def __init__(self, scheduler: Scheduler, stream: Stream) -> None:
        loop = asyncio.get_running_loop()
        self._arrived: asyncio.Queue[Piece | Exception] = asyncio.Queue()
        self._scheduler = scheduler

        def deliver(item: Piece | Exception) -> None:
            loop.call_soon_threadsafe(self._arrived.put_nowait, item)

        self._job = scheduler.submit(stream, deliver)

    async def __aiter__(self) -> AsyncIterator[Piece]:
        while True:
            item = await self._arrived.get()
            if isinstance(item, Exception):
                raise item
            yield item
            if item.finish_reason:
                return

    def cancel(self) -> None:
        self._scheduler.cancel(self._job)


class EventStream(StreamingResponse):
    """Server-sent events. However it ends, and if the client leaves, the answer ends with it."""

    def __init__(self, pieces: Pieces, events: AsyncIterator[bytes]) -> None:
        super().__init__(events, media_type="text/event-stream", headers={"Cache-Control": "no-cache"})
        self._pieces = pieces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._pieces.cancel()


async def _events(pieces: Pieces, form: Form, request: Request) -> AsyncIterator[bytes]:
    if beginning := form.opening() + (form.chunk(request.echo) if request.echo else b""):
        yield beginning
    try:
        async for piece in pieces:
            if piece.text:
                yield form.chunk(piece.text)
            if piece.finish_reason:
                yield form.closing(piece, request.include_usage)
    except Exception as error:  # the status has been sent: the error can only be an event
        yield event(_as_api_error(error).body)


async def _whole(http: HttpRequest, pieces: Pieces, form: Form, request: Request) -> Response:
    answer = asyncio.create_task(_collect(pieces, form, request))
    left = asyncio.create_task(_client_leaves(http))
    try:
        await asyncio.wait({answer, left}, return_when=asyncio.FIRST_COMPLETED)
        return answer.result() if answer.done() else Response(status_code=CLIENT_LEFT)
    finally:
        answer.cancel()
        left.cancel()
        pieces.cancel()


async def _collect(pieces: Pieces, form: Form, request: Request) -> Response:
    texts = [request.echo]
    try:
        async for piece in pieces:
            texts.append(piece.text)
            last = piece
    except Exception as error:
        raise _as_api_error(error) from error
    return JSONResponse(form.whole("".join(texts), last))


async def _client_leaves(http: HttpRequest) -> None:
    while (await http.receive())["type"] != "http.disconnect":
        pass


def _as_api_error(error: Exception) -> ApiError:
    if isinstance(error, SchedulerClosed):
        return ApiError(503, str(error))
    return ApiError(500, f"the answer could not be made: {error}")


async def _answer_error(http: HttpRequest, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    headers = {"Retry-After": "1"} if error.status == 429 else None
    return JSONResponse(error.body, error.status, headers)


class Gate:
    """Answers only to its own names, and to those who have the key."""

    def __init__(self, app: ASGIApp, api_key: str | None, hosts: tuple[str, ...] | None) -> None:
        self._app = app
        self._key = api_key
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        error = self._refusal(HttpRequest(scope)) if scope["type"] == "http" else None
        answer = JSONResponse(error.body, error.status) if error else self._app
        await answer(scope, receive, send)

    def _refusal(self, http: HttpRequest) -> ApiError | None:
        if self._hosts is not None and http.url.hostname not in self._hosts:
            return ApiError(403, f"this server does not answer to the name {http.url.hostname!r}")
        if self._key is not None and http.url.path != "/health":
            given = http.headers.get("authorization", "").removeprefix("Bearer ")
            if not hmac.compare_digest(given.encode(), self._key.encode()):
                return ApiError(401, "the API key is missing or wrong", code="invalid_api_key")
        return None
