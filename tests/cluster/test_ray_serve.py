"""The server as a Ray Serve deployment, asked by the client of OpenAI."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray.serve")

import httpx
import openai
from ray import serve

from pteron.ray import serve_app
from tests.llm.test_embedder import folder

__all__ = ["folder"]  # a tiny embedder


@pytest.fixture
def url(ray_cluster: Any, folder: Path) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    serve.run(serve_app(folder, name="tiny", replicas=2), name="tiny", route_prefix="/")
    yield f"http://127.0.0.1:{port}/v1"
    serve.shutdown()


def test_two_replicas_answer(url: str) -> None:
    client = openai.OpenAI(base_url=url, api_key="none", max_retries=0)
    assert [model.id for model in client.models.list()] == ["tiny"]
    asked = [
        client.embeddings.create(model="tiny", input="the cat", encoding_format="float") for _ in range(6)
    ]
    vectors = {tuple(answer.data[0].embedding) for answer in asked}
    assert len(vectors) == 1 and len(vectors.pop()) == 64
    with pytest.raises(openai.NotFoundError, match="there is no model 'other'"):
        client.embeddings.create(model="other", input="the cat")


def test_requests_of_a_session_go_to_one_replica(url: str) -> None:
    """Each replica counts its requests. Those of a session are counted where its next request goes."""

    def finished(session: str) -> float:
        metrics = httpx.get(url.replace("/v1", "/metrics"), headers={"x-session-id": session}).text
        counts = [line for line in metrics.splitlines() if line.startswith("pteron_requests_total{")]
        return sum(float(line.rpartition(" ")[2]) for line in counts)

    body = {"model": "tiny", "input": "the cat"}
    for number, session in enumerate("abcde", 1):
        before = finished(session)
        for _ in range(number):
            answer = httpx.post(f"{url}/embeddings", json=body, headers={"x-session-id": session})
            assert answer.status_code == 200
        assert finished(session) == before + number
