"""The application and the server."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from socket import socket
from typing import Any

from starlette.applications import Starlette
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Route

from pteron.errors import InputError
from pteron.llm import Embedder, LanguageModel
from pteron.llm.options import ContextPolicy
from pteron.server.bodies import Bodies
from pteron.server.catalog import Catalog, Model, ModelFile
from pteron.server.chat_page import page_routes
from pteron.server.connections import Server
from pteron.server.endpoints import Endpoints
from pteron.server.gate import LOOPBACK, Gate
from pteron.server.limits import Limits
from pteron.server.metrics import Metrics
from pteron.server.refusals import HANDLERS
from pteron.server.request_log import LogFormat, RequestLog
from pteron.server.scheduler import LEAST, Scheduler

ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#@\s]+|null")


def create_app(
    models: Model | Sequence[ModelFile],
    *,
    name: str = "pteron",
    parallel: int | None = None,
    kv_memory: int | None = None,
    queue: int = 16,
    api_key: str | None = None,
    hosts: tuple[str, ...] | None = None,
    allow_special: bool = False,
    context_policy: ContextPolicy = "stop",
    cors: Sequence[str] = (),
    idle_seconds: float | None = None,
    memory: int | None = None,
    verify: float = 0.0,
    limits: Limits | None = None,
) -> Starlette:
    """Make an ASGI application with the OpenAI API. Use it to mount the API in your own server.

    `make_server` also limits connections.

    Args:
        models: A loaded model, or files that are loaded when a request asks for them.
        name: The name of a loaded model. A request without a name gets the first model.
        parallel: The number of answers at the same time, for each model. Each has its own KV cache. Default:
            as many as one call of the model continues (see `pteron.llm.load`), and at least 4.
        kv_memory: The most bytes for the KV caches of a model. If they are not enough for all of them,
            there are fewer at the same time.
        queue: The number of requests that may wait for each model. More get status 429.
        api_key: The key that clients must send. Default: none is needed.
        hosts: The accepted `Host` headers. Default: any.
        allow_special: Messages may write control tokens (see `LanguageModel.encode`).
        context_policy: What to do when the context is full (see `AnswerOptions`).
        cors: The origins of web pages that may use the server, such as `https://app.example`; `"*"`: any.
        idle_seconds: Models that were not used for this time are unloaded. Default: never.
        memory: The most bytes on the GPU for all models. Idle models are unloaded to make room.
        verify: Of this share of a language model's calls, a node is computed again by a reference (see
            `pteron.verify`). The metric `pteron_verified_nodes_total` counts the results.
        limits: Limits on requests and connections.
    """
    if not 0 <= verify <= 1:
        raise InputError(f"verify is {verify}: expected a share of the calls, between 0 and 1")
    origins = [_checked_origin(origin) for origin in cors]
    metrics = Metrics()
    catalog = Catalog(
        _files(models, name),
        lambda name, model: Scheduler.of(model, parallel, queue, metrics.of(name), kv_memory, verify),
        idle_seconds=idle_seconds,
        memory=memory,
    )
    fixed = {"allow_special": allow_special, "context_policy": context_policy}
    endpoints = Endpoints(catalog, Bodies(limits or Limits()), fixed, (parallel or LEAST) + queue)
    app = Starlette(
        routes=[*endpoints.routes(), *page_routes(), Route("/metrics", metrics.response)],
        exception_handlers=HANDLERS,
        lifespan=endpoints.lifespan,
    )
    app.router.redirect_slashes = False
    app.state.catalog = catalog
    app.add_middleware(Gate, api_key=api_key, hosts=hosts)
    if origins:  # before the gate: a browser asks for permission without the key, and reads refusals too
        app.add_middleware(
            CORSMiddleware,
            allow_origins=origins,
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["*"],
            allow_private_network=True,
        )
    app.add_middleware(RequestLog)  # the last is the first to see a request: refused ones are logged too
    return app


def _files(models: Model | Sequence[ModelFile], name: str) -> list[ModelFile]:
    if isinstance(models, (LanguageModel, Embedder)):
        return [ModelFile(name, lambda: nullcontext(models), keep=True)]
    names = [file.name for file in models]
    if not names:
        raise InputError("models is empty: a server needs at least one")
    for twice in names:
        if names.count(twice) > 1:
            raise InputError(f"two models have the name {twice!r}: give each its own")
    return list(models)


def _checked_origin(origin: str) -> str:
    """Browsers send an origin without a path. Another text would never match, and nobody would see why."""
    if origin != "*" and not ORIGIN.fullmatch(origin):
        raise InputError(f"cors is {origin!r}: expected an origin such as https://app.example:8000, or *")
    return origin


def make_server(
    models: Model | Sequence[ModelFile],
    *,
    host: str = "127.0.0.1",
    port: int = 8080,
    limits: Limits | None = None,
    log_level: str | None = None,
    log_format: LogFormat = "plain",
    **options: Any,
) -> Server:
    """Make a server. Its method `run()` serves until the process is interrupted.

    Args:
        models: A loaded model, or files that are loaded when a request asks for them.
        host: The address to listen on.
        port: The port to listen on.
        limits: Limits on requests and connections.
        log_level: The level of uvicorn's log.
        log_format: `"plain"`, or `"json"`: one JSON object per line.
        **options: The options of `create_app`.
    """
    # A web page can make a browser call a local server under another host name: accept only local names.
    options.setdefault("hosts", LOOPBACK if host in LOOPBACK else None)
    limits = limits or Limits()
    app = create_app(models, limits=limits, **options)
    return Server(app, limits, host=host, port=port, log_level=log_level, log_format=log_format)


def serve(
    models: Model | Sequence[ModelFile], *, sockets: list[socket] | None = None, **options: Any
) -> None:
    """Serve models until the process is interrupted.

    Every connection is an open file, of which a process may often have about a thousand.

    Args:
        models: A loaded model, or files that are loaded when a request asks for them.
        sockets: Sockets with an address, instead of host and port. See `reserved`.
        **options: The options of `make_server`.

    Example:
        ```python
        with pteron.llm.load("model.gguf", parallel=8) as llm:
            pteron.server.serve(llm, name="small", port=8080)
        ```
    """
    with suppress(KeyboardInterrupt):
        make_server(models, **options).run(sockets)
