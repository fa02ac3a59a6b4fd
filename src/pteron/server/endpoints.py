"""The HTTP endpoints of the OpenAI API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from typing import Any, TypeAlias

from anyio.lowlevel import checkpoint
from starlette.applications import Starlette
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from pteron.llm import Embedder, LanguageModel
from pteron.llm.answer import Answer
from pteron.server.bodies import Bodies
from pteron.server.catalog import Catalog, Lease, ServedModel
from pteron.server.embedding_batch import Embedding
from pteron.server.embeddings import embeddings_body, parse_embeddings, token_rows
from pteron.server.pieces import EventStream, Pieces, whole
from pteron.server.refusals import as_api_error, as_api_errors
from pteron.server.requests import ApiError, Request, parse_chat, parse_completion
from pteron.server.response_api import ResponseReader
from pteron.server.response_store import ResponseStore
from pteron.server.responses import AnswerForm, ChatForm, CompletionForm, Written
from pteron.server.scheduler import QueueFull, Scheduler

# A request, and what makes its response for the name of a model.
Read: TypeAlias = Callable[[bytes], tuple[Request, Callable[[str], AnswerForm]]]


class Endpoints:
    """The paths of the server."""

    def __init__(self, catalog: Catalog, bodies: Bodies, fixed: dict[str, Any], most: int) -> None:
        """`fixed` are the options of all answers. `most` requests may be prepared at the same time."""
        self.catalog = catalog
        self._bodies = bodies
        self._fixed = fixed
        self._most = most
        self._preparing = 0
        self._stored = ResponseStore()
        # One thread: reading a body holds Python's lock.
        self._reader = ThreadPoolExecutor(1, "pteron prompts")
        # Another thread: a grammar may take seconds. It does not hold the lock, and nobody else waits for it.
        self._compiler = ThreadPoolExecutor(1, "pteron grammars")

    def routes(self) -> list[Route]:
        return [
            Route("/v1/models", self.models),
            Route("/v1/models/{model:path}", self.model),
            Route("/v1/chat/completions", self.chat, methods=["POST"]),
            Route("/v1/completions", self.complete, methods=["POST"]),
            Route("/v1/responses", self.respond, methods=["POST"]),
            Route("/v1/responses/{id}", self.response, methods=["GET", "DELETE"]),
            Route("/v1/embeddings", self.embed, methods=["POST"]),
            Route("/health", self.health),
        ]

    @asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        await checkpoint()  # imports the rest of anyio, which would stop the event loop at the first stream
        unloading = asyncio.create_task(self._unload_idle())
        yield
        unloading.cancel()
        with suppress(asyncio.CancelledError):
            await unloading
        await self.catalog.close()
        for threads in (self._reader, self._compiler):
            threads.shutdown(wait=False, cancel_futures=True)

    async def _unload_idle(self) -> None:
        while True:
            await asyncio.sleep(0.25)
            await self.catalog.unload_idle()

    async def health(self, http: HttpRequest) -> Response:
        loaded = self.catalog.loaded
        active = sum(served.scheduler.active for served in loaded)
        waiting = sum(served.scheduler.waiting for served in loaded) + self._preparing
        return JSONResponse({"status": "ok", "active": active, "waiting": waiting})

    async def models(self, http: HttpRequest) -> Response:
        return JSONResponse({"object": "list", "data": self.catalog.cards})

    async def model(self, http: HttpRequest) -> Response:
        return JSONResponse(self.catalog.card(http.path_params["model"]))

    async def chat(self, http: HttpRequest) -> Response:
        return await self._answer(http, lambda body: (parse_chat(body), ChatForm))

    async def complete(self, http: HttpRequest) -> Response:
        return await self._answer(http, lambda body: (parse_completion(body), CompletionForm))

    async def respond(self, http: HttpRequest) -> Response:
        return await self._answer(http, ResponseReader(self._stored))

    async def response(self, http: HttpRequest) -> Response:
        """A stored response, which may be deleted."""
        wanted = http.path_params["id"]
        if http.method == "DELETE":
            self._stored.delete(wanted)
            return JSONResponse({"id": wanted, "object": "response", "deleted": True})
        return JSONResponse(self._stored.get(wanted).body)

    async def embed(self, http: HttpRequest) -> Response:
        body = await self._body(http)
        with self._place(), as_api_errors(), ExitStack() as undo:
            request = await self._read(parse_embeddings, body)
            lease = await self._lease(request.model, undo)
            embedder = lease.model(Embedder, "/v1/embeddings")
            with self._place_of(lease.served):
                task = Embedding(embedder, await self._read(token_rows, embedder, request))
                pieces = Pieces(lease, [task])
            undo.pop_all()

        async def collected() -> Response:
            async for _ in _checked(pieces):
                pass
            normalize = bool(embedder.description.get("normalize"))
            return JSONResponse(embeddings_body(lease.served.name, request, task, normalize))

        return await whole(http, pieces, collected())

    async def _answer(self, http: HttpRequest, read: Read) -> Response:
        body = await self._body(http)
        with self._place(), as_api_errors(), ExitStack() as undo:
            request, make_form = await self._read(read, body)
            lease = await self._lease(request.model, undo)
            llm = lease.model(LanguageModel, http.scope["path"])
            form = make_form(lease.served.name)
            _check_count(request, lease.served.scheduler)
            with self._place_of(lease.served):
                source = await self._read(llm.grammar_of, request.options)
                if source:
                    loop = asyncio.get_running_loop()
                    await loop.run_in_executor(self._compiler, llm.grammars.compiled, source)
                pieces = Pieces(lease, await self._read(self._answers, llm, request))
            undo.pop_all()
        if request.stream:
            return EventStream(pieces, _events(pieces, form, request))
        return await whole(http, pieces, _collected(pieces, form, request))

    def _answers(self, llm: LanguageModel, request: Request) -> list[Answer]:
        options: Any = {**request.options, **self._fixed}
        answers = (llm.answers(prompt, request.n, **options) for prompt in request.prompts)
        return [answer for some in answers for answer in some]

    async def _body(self, http: HttpRequest) -> bytes:
        _check_content_type(http)
        return await self._bodies.read(http)

    async def _read(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Run outside the event loop: to parse a large body or to tokenize a long prompt takes time."""
        return await asyncio.get_running_loop().run_in_executor(self._reader, work, *arguments)

    async def _lease(self, name: str | None, undo: ExitStack) -> Lease:
        """A model that is released if the request fails before its answer begins."""
        lease = await self.catalog.lease(name)
        undo.callback(lease.release)
        return lease

    @contextmanager
    def _place(self) -> Iterator[None]:
        """Reserve a place before any work is done. Refuse the request if there is none."""
        only = self.catalog.only
        with as_api_errors():
            if only:
                only.scheduler.check_room(self._preparing)
            elif self._preparing >= self._most:  # which model it wants is not known yet
                raise QueueFull(f"{self._preparing} requests are being prepared: try again later")
        self._preparing += 1
        try:
            yield
        finally:
            self._preparing -= 1

    @contextmanager
    def _place_of(self, served: ServedModel) -> Iterator[None]:
        """Reserve a place in the queue of a model."""
        served.scheduler.check_room(served.preparing)
        served.preparing += 1
        try:
            yield
        finally:
            served.preparing -= 1


def _check_count(request: Request, scheduler: Scheduler) -> None:
    """More answers than there are places would be refused for ever."""
    wanted, most = len(request.prompts) * request.n, scheduler.parallel + scheduler.queue
    if wanted > most:
        at_most = f"this server takes at most {most} at a time: ask for fewer"
        raise ApiError(400, f"the request asks for {wanted} answers, but {at_most}")


def _check_content_type(http: HttpRequest) -> None:
    """A web page may send any server a form or plain text. For JSON, browsers ask the server first."""
    kind = http.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise ApiError(415, f"the Content-Type must be application/json, but is {kind or 'missing'}")


async def _checked(pieces: Pieces) -> AsyncIterator[tuple[int, Any]]:
    try:
        async for item in pieces:
            yield item
    except Exception as error:
        raise as_api_error(error) from error


async def _events(pieces: Pieces, form: AnswerForm, request: Request) -> AsyncIterator[bytes]:
    answers = _empty_answers(pieces, request)
    for index, answer in enumerate(answers):
        if beginning := form.opening(index) + (form.chunk(index, answer.text) if answer.text else b""):
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
        yield form.closing(_by_prompt(answers, request), request.include_usage)
    except Exception as error:  # the status has been sent: the error can only be an event
        yield form.failure(as_api_error(error))


async def _collected(pieces: Pieces, form: AnswerForm, request: Request) -> Response:
    answers = _empty_answers(pieces, request)
    async for index, piece in _checked(pieces):
        answers[index].add(piece)
    return JSONResponse(form.whole(_by_prompt(answers, request)))


def _empty_answers(pieces: Pieces, request: Request) -> list[Written]:
    return [Written(request.beginning(index)) for index in range(len(pieces))]


def _by_prompt(answers: list[Written], request: Request) -> list[list[Written]]:
    n = request.n
    return [answers[first : first + n] for first in range(0, len(answers), n)]
