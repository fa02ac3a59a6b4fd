"""A server that runs, and what tests ask of it."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import httpx
import openai

from pteron.llm import Embedder, LanguageModel
from pteron.server import ModelFile, make_server
from pteron.server.connections import Server

Served: TypeAlias = LanguageModel | Embedder | Sequence[ModelFile]
HELLO: Any = [{"role": "user", "content": "hello"}]


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


@contextmanager
def running(llm: Served, **options: Any) -> Iterator[str]:
    """The address of a server on a port of its own."""
    with running_server(llm, **options) as server:
        yield f"http://127.0.0.1:{server.config.port}"


@contextmanager
def running_server(llm: Served, **options: Any) -> Iterator[Server]:
    server = make_server(llm, port=free_port(), **{"name": "x", "log_level": "warning", **options})
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait_until(lambda: server.started)
        yield server
    finally:
        server.should_exit = True
        thread.join(30)
        assert not thread.is_alive()


def wait_until(condition: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def client_of(url: str, **options: Any) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=60, **options)


def health(url: str) -> dict[str, Any]:
    answer: dict[str, Any] = httpx.get(f"{url}/health").json()
    return answer


def idle(url: str) -> bool:
    return health(url) == {"status": "ok", "active": 0, "waiting": 0}


def is_up(url: str) -> bool:
    try:
        return idle(url)
    except httpx.TransportError:
        return False


def ignoring_the_end(llm: LanguageModel) -> list[int]:
    """A prompt whose greedy answer runs to the end of the context."""
    for token in range(256):
        if len(llm.generate([token], max_new_tokens=40).tokens) == 40:
            return [token]
    raise AssertionError("every answer is short")
