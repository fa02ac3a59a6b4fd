"""The HTTP endpoints, and their connection to the scheduler."""

from __future__ import annotations

import asyncio
import gc
import logging
import re
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import Any

from anyio.lowlevel import checkpoint
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from pteron.errors import DeviceLost, InputError, PteronError
from pteron.llm import ContextFull, Embedder, LanguageModel, Piece, Stream
from pteron.llm.bounded import OutOfBounds
from pteron.llm.context import ContextPolicy
from pteron.llm.grammar import TooComplex
from pteron.llm.tools import ToolError
from pteron.server.bodies import Bodies, ClientLeft
from pteron.server.connections import Server
from pteron.server.embeddings import (
    Embedding,
    EmbeddingRequest,
    embeddings_body,
    parse_embeddings,
    token_rows,
)
from pteron.server.gate import LOOPBACK, Gate
from pteron.server.limits import Limits
from pteron.server.metrics import Metrics
from pteron.server.request_log import LogFormat, RequestLog, current_record
from pteron.server.requests import ApiError, Request, parse_chat, parse_completion
from pteron.server.responses import ChatForm, CompletionForm, Form, Written, event
from pteron.server.scheduler import Job, ModelLost, QueueFull, Scheduler, SchedulerClosed, Task

CLIENT_LEFT = 499  # nobody reads it
ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#@\s]+|null")
log = logging.getLogger("uvicorn.error")


def create_app(
    model: LanguageModel | Embedder,
    *,
    name: str = "pteron",
    sessions: int = 4,
    kv_memory: int | None = None,
    queue: int = 16,
    api_key: str | None = None,
    hosts: tuple[str, ...] | None = None,
    allow_special: bool = False,
    context_policy: ContextPolicy = "stop",
    cors: Sequence[str] = (),
    limits: Limits | None = None,
) -> Starlette:
    """An ASGI application for a language model or an embedder. `make_server` also limits connections.

    name: requests must name the model so, or leave its name out.
    sessions: the number of answers at the same time, each with its own KV state.
    kv_memory: the most bytes for KV caches. If they are not enough for so many sessions, there are fewer.
    queue: the number of requests that may wait; more get status 429.
    api_key: the key that clients must send. hosts: the accepted Host headers (None: any).
    allow_special: messages may write control tokens (see `LanguageModel.encode`).
    context_policy: what to do when the context is full (see `AnswerOptions`).
    cors: the origins of web pages that may use the server, such as https://app.example; "*": any.
    """
    origins = [_checked_origin(origin) for origin in cors]
    metrics = Metrics()
    scheduler = Scheduler.of(model, sessions, queue, metrics.of(name), kv_memory)
    bodies = Bodies(limits or Limits())
    fixed = {"allow_special": allow_special, "context_policy": context_policy}
    endpoints = (
        EmbeddingEndpoints(model, name, scheduler, bodies)
        if isinstance(model, Embedder)
        else TextEndpoints(model, name, scheduler, bodies, fixed)
    )
    app = Starlette(
        routes=[*endpoints.routes(), Route("/metrics", metrics.response)],
        exception_handlers={
            ApiError: _answer_error,
            HTTPException: _answer_http_error,
            ClientLeft: _note_client_left,
            Exception: _answer_fault,
        },
        lifespan=endpoints.lifespan,
    )
    app.router.redirect_slashes = False
    app.state.scheduler = scheduler
    app.add_middleware(Gate, api_key=api_key, hosts=hosts)
    if origins:  # before the gate: a browser asks for permission without the key, and reads refusals too
        app.add_middleware(
            CORSMiddleware,
            allow_origins=origins,
            allow_methods=["GET", "POST"],
            allow_headers=["*"],
            allow_private_network=True,
        )
    app.add_middleware(RequestLog)  # the last is the first to see a request: refused ones are logged too
    return app


def _checked_origin(origin: str) -> str:
    """Browsers send an origin without a path. Another text would never match, and nobody would see why."""
    if origin != "*" and not ORIGIN.fullmatch(origin):
        raise InputError(f"cors is {origin!r}: expected an origin such as https://app.example:8000, or *")
    return origin


def make_server(
    model: LanguageModel | Embedder,
    *,
    host: str = "127.0.0.1",
    port: int = 8080,
    limits: Limits | None = None,
    log_level: str | None = None,
    log_format: LogFormat = "plain",
    **options: Any,
) -> Server:
    """A server to `run()`. The other options are those of `create_app`.

    log_format: "json" writes one JSON object a line.
    """
    # A web page can make a browser call a local server under another host name: accept only local names.
    options.setdefault("hosts", LOOPBACK if host in LOOPBACK else None)
    limits = limits or Limits()
    app = create_app(model, limits=limits, **options)
    return Server(app, limits, host=host, port=port, log_level=log_level, log_format=log_format)


def serve(model: LanguageModel | Embedder, **options: Any) -> None:
    """Serve a model until the process is interrupted. The options are those of `make_server`."""
    limits: Limits = options.setdefault("limits", Limits())
    _allow_open_files(limits.connections + 100)
    # How long the event loop waits for Python's lock while the scheduler's thread computes.
    sys.setswitchinterval(0.0005)
    gc.freeze()  # the garbage collector need not look at the model again
    with suppress(KeyboardInterrupt):
        make_server(model, **options).run()


def _allow_open_files(count: int) -> None:
    """Raise the limit on open files: every connection is one, and the default is often about a thousand."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count if hard == resource.RLIM_INFINITY else min(count, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class Endpoints:
    """What every kind of model has."""

    def __init__(self, name: str, scheduler: Scheduler, bodies: Bodies) -> None:
        self.name = name
        self.scheduler = scheduler
        self._bodies = bodies
        self._preparing = 0  # requests that have a place, but are not yet with the scheduler
        # One thread: reading a body holds Python's lock.
        self._reader = ThreadPoolExecutor(1, "pteron prompts")
        self._card = {"id": name, "object": "model", "created": int(time.time()), "owned_by": "pteron"}

    def routes(self) -> list[Route]:
        return [
            Route("/v1/models", self.models),
            Route("/v1/models/{model:path}", self.model),
            Route("/health", self.health),
        ]

    @asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        await checkpoint()  # imports the rest of anyio, which would stop the event loop at the first stream
        yield
        await asyncio.to_thread(self.scheduler.close)
        self._reader.shutdown(wait=False, cancel_futures=True)

    async def health(self, http: HttpRequest) -> Response:
        waiting = self.scheduler.waiting + self._preparing
        return JSONResponse({"status": "ok", "active": self.scheduler.active, "waiting": waiting})

    async def models(self, http: HttpRequest) -> Response:
        return JSONResponse({"object": "list", "data": [self._card]})

    async def model(self, http: HttpRequest) -> Response:
        self._check_name(http.path_params["model"])
        return JSONResponse(self._card)

    def _check_name(self, wanted: str | None) -> None:
        if wanted not in (None, self.name):
            known = f"there is no model {wanted!r}; this server has: {self.name}"
            raise ApiError(404, known, param="model", code="model_not_found")

    async def _body(self, http: HttpRequest) -> bytes:
        _check_content_type(http)
        return await self._bodies.read(http)

    @contextmanager
    def _place(self) -> Iterator[None]:
        """Reserve a place before any work is done. Refuse the request if there is none."""
        with _as_api_errors():
            self.scheduler.check_room(self._preparing)
            self._preparing += 1
            try:
                yield
            finally:
                self._preparing -= 1


class TextEndpoints(Endpoints):
    def __init__(
        self, llm: LanguageModel, name: str, scheduler: Scheduler, bodies: Bodies, fixed: dict[str, Any]
    ) -> None:
        """`fixed` are the options of all answers."""
        super().__init__(name, scheduler, bodies)
        self.llm = llm
        self._fixed = fixed
        # Another thread: a grammar may take seconds. It does not hold the lock, and nobody else waits for it.
        self._compiler = ThreadPoolExecutor(1, "pteron grammars")

    def routes(self) -> list[Route]:
        return [
            *super().routes(),
            Route("/v1/chat/completions", self.chat, methods=["POST"]),
            Route("/v1/completions", self.complete, methods=["POST"]),
        ]

    @asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        async with super().lifespan(app):
            yield
        self._compiler.shutdown(wait=False, cancel_futures=True)

    async def chat(self, http: HttpRequest) -> Response:
        return await self._respond(http, parse_chat, ChatForm(self.name))

    async def complete(self, http: HttpRequest) -> Response:
        return await self._respond(http, parse_completion, CompletionForm(self.name))

    async def _respond(self, http: HttpRequest, parse: Callable[[bytes], Request], form: Form) -> Response:
        body = await self._body(http)
        with self._place():
            loop = asyncio.get_running_loop()
            request = await loop.run_in_executor(self._reader, parse, body)
            self._check_name(request.model)
            source = await loop.run_in_executor(self._reader, self.llm.grammar_of, request.options)
            if source:
                await loop.run_in_executor(self._compiler, self.llm.grammars.compiled, source)
            streams = await loop.run_in_executor(self._reader, self._streams, request)
            pieces = Pieces(self.scheduler, streams)
        if request.stream:
            return EventStream(pieces, _events(pieces, form, request))
        return await _whole(http, pieces, _collect(pieces, form, request))

    def _streams(self, request: Request) -> list[Stream]:
        """Runs outside the event loop: to tokenize a long prompt takes time."""
        options: Any = {**request.options, **self._fixed}
        if request.best_of > request.n:
            options["logprobs"] = True  # they say which answers are the best
        return self.llm.streams(request.prompt, request.best_of, **options)


class EmbeddingEndpoints(Endpoints):
    def __init__(self, embedder: Embedder, name: str, scheduler: Scheduler, bodies: Bodies) -> None:
        super().__init__(name, scheduler, bodies)
        self.embedder = embedder

    def routes(self) -> list[Route]:
        return [*super().routes(), Route("/v1/embeddings", self.embed, methods=["POST"])]

    async def embed(self, http: HttpRequest) -> Response:
        body = await self._body(http)
        with self._place():
            loop = asyncio.get_running_loop()
            request = await loop.run_in_executor(self._reader, parse_embeddings, body)
            self._check_name(request.model)
            rows = await loop.run_in_executor(self._reader, token_rows, self.embedder, request)
            work = Embedding(self.embedder, rows)
            pieces = Pieces(self.scheduler, [work])
        return await _whole(http, pieces, self._collect(pieces, request, work))

    async def _collect(self, pieces: Pieces, request: EmbeddingRequest, work: Embedding) -> Response:
        try:
            async for _ in pieces:
                pass
        except Exception as error:
            raise _as_api_error(error) from error
        normalize = bool(self.embedder.description.get("normalize"))
        return JSONResponse(embeddings_body(self.name, request, work, normalize))


def _check_content_type(http: HttpRequest) -> None:
    """A web page may send any server a form or plain text. For JSON, browsers ask the server first."""
    kind = http.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise ApiError(415, f"the Content-Type must be application/json, but is {kind or 'missing'}")


@contextmanager
def _as_api_errors() -> Iterator[None]:
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


class Pieces:
    """The pieces of all tasks of one request, for the event loop."""

    def __init__(self, scheduler: Scheduler, tasks: Sequence[Task]) -> None:
        self._loop = asyncio.get_running_loop()
        self._arrived: asyncio.Queue[tuple[int, Piece | Exception]] = asyncio.Queue()
        self._scheduler = scheduler
        self._record = current_record()
        self._record.model = scheduler.name
        self._jobs: list[Job] = []
        try:
            for index, task in enumerate(tasks):
                self._jobs.append(scheduler.submit(task, partial(self._deliver, index)))
        except BaseException:  # there is no room for all of them
            self.cancel()
            raise

    def __len__(self) -> int:
        """The number of answers."""
        return len(self._jobs)

    def _deliver(self, index: int, item: Piece | Exception) -> None:
        """Called by the scheduler's thread."""
        self._loop.call_soon_threadsafe(self._arrived.put_nowait, (index, item))

    async def __aiter__(self) -> AsyncIterator[tuple[int, Piece]]:
        """Each piece with the number of its answer."""
        unfinished = len(self._jobs)
        while unfinished:
            index, item = await self._arrived.get()
            if isinstance(item, Exception):
                raise item
            self._record.add(item)
            yield index, item
            if item.finish_reason:
                unfinished -= 1

    def cancel(self) -> None:
        for job in self._jobs:
            self._scheduler.cancel(job)


class EventStream(StreamingResponse):
    """Server-sent events. When the response ends, or the client leaves, the answer is cancelled."""

    def __init__(self, pieces: Pieces, events: AsyncIterator[bytes]) -> None:
        super().__init__(events, media_type="text/event-stream", headers={"Cache-Control": "no-cache"})
        self._pieces = pieces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._pieces.cancel()


async def _events(pieces: Pieces, form: Form, request: Request) -> AsyncIterator[bytes]:
    answers = [Written(request.echo) for _ in range(len(pieces))]
    for index in range(len(pieces)):
        if beginning := form.opening(index) + (form.chunk(index, request.echo) if request.echo else b""):
            yield beginning
    try:
        async for index, piece in pieces:
            logprobs = answers[index].add(piece)
            if piece.text or logprobs:
                yield form.chunk(index, piece.text, logprobs)
            for delta in piece.calls:
                yield form.call(index, delta)
            if piece.finish_reason:
                yield form.ending(index, answers[index])
        yield form.closing(answers, request.include_usage)
    except Exception as error:  # the status has been sent: the error can only be an event
        yield event(_as_api_error(error).body)


async def _whole(http: HttpRequest, pieces: Pieces, response: Coroutine[Any, Any, Response]) -> Response:
    """The response, once it is complete. If the client leaves before, the pieces are cancelled."""
    answer = asyncio.create_task(response)
    left = asyncio.create_task(_client_leaves(http))
    try:
        await asyncio.wait({answer, left}, return_when=asyncio.FIRST_COMPLETED)
        return answer.result() if answer.done() else Response(status_code=CLIENT_LEFT)
    finally:
        answer.cancel()
        left.cancel()
        pieces.cancel()


async def _collect(pieces: Pieces, form: Form, request: Request) -> Response:
    answers = [Written(request.echo) for _ in range(len(pieces))]
    try:
        async for index, piece in pieces:
            answers[index].add(piece)
    except Exception as error:
        raise _as_api_error(error) from error
    return JSONResponse(form.whole(answers, request.n, bool(request.options.get("logprobs"))))


async def _client_leaves(http: HttpRequest) -> None:
    while (await http.receive())["type"] != "http.disconnect":
        pass


def _as_api_error(error: Exception) -> ApiError:
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
