"""/v1/embeddings as the official client uses it, over a real socket."""

from __future__ import annotations

import base64
import json
import socket
import time
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import httpx
import numpy as np
import openai
import pytest

import pteron.llm
from pteron.engine.devices.opening import Device
from pteron.llm import Embedder
from pteron.llm.embedder import is_embedder
from pteron.server import ModelFile
from tests.llm.reciter import reciter
from tests.llm.tiny_encoders import LENGTH, TEXTS, model, write_folder
from tests.server.running import client_of, idle, running, wait_until


@pytest.fixture(scope="module")
def embedder(tmp_path_factory: pytest.TempPathFactory, device: Device) -> Iterator[Embedder]:
    folder = tmp_path_factory.mktemp("embedder")
    pteron.llm.convert(write_folder(folder / "tiny", model("bert")), folder / "tiny.pte")
    assert is_embedder(folder / "tiny.pte")
    with pteron.llm.load_embedder(folder / "tiny.pte", device=device) as made:
        yield made


@pytest.fixture(scope="module")
def url(embedder: Embedder) -> Iterator[str]:
    with running(embedder, name="tiny", queue=2) as url:
        yield url


@pytest.fixture(scope="module")
def client(url: str) -> openai.OpenAI:
    return client_of(url)


def vectors(answer: Any) -> Any:
    assert [item.index for item in answer.data] == list(range(len(answer.data)))
    return np.array([item.embedding for item in answer.data], np.float32)


def test_texts(client: openai.OpenAI, embedder: Embedder) -> None:
    texts = TEXTS * 3  # more than one step
    got = client.embeddings.create(model="tiny", input=texts)
    np.testing.assert_array_equal(vectors(got), embedder.embed(texts))
    tokens = sum(map(len, embedder.encode(texts)))
    assert (got.model, got.usage.prompt_tokens, got.usage.total_tokens) == ("tiny", tokens, tokens)


def test_one_text_and_tokens(client: openai.OpenAI, embedder: Embedder) -> None:
    want = embedder.embed(TEXTS[3])
    tokens = embedder.encode(TEXTS[3])
    for given in (TEXTS[3], tokens[0], tokens):
        np.testing.assert_array_equal(vectors(client.embeddings.create(model="tiny", input=given)), want)


def test_both_encodings(url: str, embedder: Embedder) -> None:
    def item(form: str) -> Any:
        body = {"input": TEXTS[0], "encoding_format": form}
        return httpx.post(f"{url}/v1/embeddings", json=body).json()["data"][0]["embedding"]

    want = embedder.embed(TEXTS[0])[0]
    np.testing.assert_array_equal(np.array(item("float"), np.float32), want)
    np.testing.assert_array_equal(np.frombuffer(base64.b64decode(item("base64")), "<f4"), want)


def test_fewer_dimensions(client: openai.OpenAI, embedder: Embedder) -> None:
    cut = embedder.embed(TEXTS)[:, :5]
    got = vectors(client.embeddings.create(model="tiny", input=TEXTS, dimensions=5))
    np.testing.assert_allclose(got, cut / np.linalg.norm(cut, axis=1, keepdims=True), rtol=1e-6)


def test_long_texts(client: openai.OpenAI, embedder: Embedder) -> None:
    long = TEXTS[0] + " a" * LENGTH
    with pytest.raises(openai.BadRequestError, match=r"text 1 has .* tokens"):
        client.embeddings.create(model="tiny", input=["a", long])
    got = client.embeddings.create(model="tiny", input=["a", long], extra_body={"truncate": True})
    np.testing.assert_array_equal(vectors(got), embedder.embed(["a", long], truncate=True))


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "input"),
        ({"input": []}, "input"),
        ({"input": ["a", 5]}, "input"),
        ({"input": ["a", [5]]}, "input"),
        ({"input": [[]]}, "input"),
        ({"input": ["a"] * 2049}, "input"),
        ({"input": [10**9]}, "input"),
        ({"input": [1] * (LENGTH + 1)}, "input"),
        ({"input": "a", "dimensions": 0}, "dimensions"),
        ({"input": "a", "dimensions": 10**6}, "dimensions"),
        ({"input": "a", "encoding_format": "hex"}, "encoding_format"),
    ],
)
def test_wrong_requests_are_refused(url: str, fields: dict[str, Any], param: str) -> None:
    answer = httpx.post(f"{url}/v1/embeddings", json={"model": "tiny", **fields})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
    assert idle(url)


def test_other_names_and_endpoints(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="this server has: tiny"):
        client.embeddings.create(model="other", input="a")
    with pytest.raises(openai.BadRequestError, match="/v1/chat/completions needs a language model"):
        client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": "a"}])


def test_a_client_that_leaves_ends_its_work(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[int] = []
    vectors = Embedder.vectors

    def slowly(embedder: Embedder, rows: Any) -> Any:
        steps.append(len(rows))
        time.sleep(0.05)
        return vectors(embedder, rows)

    monkeypatch.setattr(Embedder, "vectors", slowly)
    body = json.dumps({"input": [[1]] * 2048}).encode()
    head = f"POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
    with socket.create_connection(("127.0.0.1", httpx.URL(url).port or 0)) as client:
        client.sendall(f"{head}Content-Type: application/json\r\n\r\n".encode() + body)
        wait_until(lambda: len(steps) > 0)
    wait_until(lambda: idle(url))
    assert 0 < sum(steps) < 2048


def test_beside_a_language_model(embedder: Embedder) -> None:
    files = [
        ModelFile("words", lambda: nullcontext(reciter("first"))),
        ModelFile("vectors", lambda: nullcontext(embedder)),
    ]
    with running(files) as url:
        client = client_of(url)
        assert client.completions.create(model="words", prompt="a", temperature=0).choices[0].text == "first"
        np.testing.assert_array_equal(
            vectors(client.embeddings.create(model="vectors", input=TEXTS)), embedder.embed(TEXTS)
        )
        with pytest.raises(openai.BadRequestError, match="'vectors' is an embedder: /v1/completions needs"):
            client.completions.create(model="vectors", prompt="a")
        with pytest.raises(openai.BadRequestError, match="'words' is a language model: /v1/embeddings needs"):
            client.embeddings.create(model="words", input="a")
