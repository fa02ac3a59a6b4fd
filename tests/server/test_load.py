"""Two hundred clients at once: each is answered right, or told to come back."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import pteron.llm
from pteron.engine.devices.opening import Device
from pteron.llm import LanguageModel
from tests.server.running import idle, running, wait_until

CLIENTS, PROMPTS, PARALLEL, QUEUE = 200, 40, 8, 60


async def ask(client: httpx.AsyncClient, number: int, wants: list[str]) -> str:
    """What became of one request. Every third is a stream, and every tenth leaves in its answer."""
    body: Any = {"prompt": prompt(number), "max_tokens": 5, "temperature": 0, "stream": number % 3 == 0}
    async with client.stream("POST", "/v1/completions", json=body) as answer:
        if answer.status_code in (429, 503):
            return "refused" if int(answer.headers["retry-after"]) > 0 else "no Retry-After"
        if answer.status_code != 200:
            return f"status {answer.status_code}"
        if number % 10 == 0:
            return "left"
        text = text_of((await answer.aread()).decode(), body["stream"])
    return "right" if text == wants[number % PROMPTS] else "wrong"


def prompt(number: int) -> str:
    return f"{number % PROMPTS} is the number that comes after"


def text_of(body: str, is_stream: bool) -> str:
    if not is_stream:
        return str(json.loads(body)["choices"][0]["text"])
    events = [line[6:] for line in body.splitlines() if line.startswith("data: ")]
    assert events.pop() == "[DONE]"
    return "".join(json.loads(event)["choices"][0]["text"] for event in events)


async def all_at_once(url: str, wants: list[str]) -> Counter[str]:
    limits = httpx.Limits(max_connections=CLIENTS)
    async with httpx.AsyncClient(base_url=url, timeout=600, limits=limits) as client:
        return Counter(await asyncio.gather(*(ask(client, number, wants) for number in range(CLIENTS))))


@pytest.fixture(scope="module")
def batched(model_folder: Path, device: Device) -> Iterator[LanguageModel]:
    """A model that runs all sessions in one call."""
    with pteron.llm.load(model_folder / "model.pte", device=device, parallel=PARALLEL) as model:
        assert model.decoder.parallel == PARALLEL
        yield model


def test_two_hundred_clients_get_their_own_answers(llm: LanguageModel, batched: LanguageModel) -> None:
    alone = llm.session()
    wants = [alone.generate(prompt(number), max_new_tokens=5).text for number in range(PROMPTS)]
    assert len(set(wants)) > 10  # an answer to another prompt would be seen
    with running(batched, queue=QUEUE) as url:
        became = asyncio.run(all_at_once(url, wants))
        wait_until(lambda: idle(url))
    assert set(became) <= {"right", "left", "refused"}, became
    # Nobody is refused before all places are taken.
    assert became["right"] + became["left"] >= PARALLEL + QUEUE
