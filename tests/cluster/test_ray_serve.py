"""The server as a Ray Serve deployment, asked by the client of OpenAI."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray.serve")

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
