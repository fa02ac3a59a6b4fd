"""Several models in one server: loaded when asked for, unloaded when idle or when their memory is needed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import Any

import httpx
import openai
import pytest

from pteron.errors import InputError, PteronError
from pteron.llm import LanguageModel
from pteron.server import ModelFile, create_app
from tests.llm.reciter import reciter
from tests.server.running import client_of, running_server, wait_until

MIB = 1 << 20


@cache
def speaker(text: str) -> Any:
    """A model that says its text. It is kept, because each has a process."""
    return reciter(text)


class Shelf:
    """Models that note when they are loaded and unloaded. Each holds 100 MiB."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.before_load: Callable[[str], None] = lambda name: None

    def file(self, name: str, text: str, mib: int = 100) -> ModelFile:
        @contextmanager
        def opened() -> Iterator[LanguageModel]:
            self.before_load(name)
            self.events.append(f"load {name}")
            model = speaker(text)
            model.program.device.allocated_nbytes = mib * MIB
            yield model
            self.events.append(f"unload {name}")

        return ModelFile(name, opened, mib * MIB)


@pytest.fixture()
def shelf() -> Shelf:
    return Shelf()


@contextmanager
def serving(files: list[ModelFile], **options: Any) -> Iterator[tuple[openai.OpenAI, Any]]:
    with running_server(files, **options) as server:
        app: Any = server.config.app
        yield client_of(f"http://127.0.0.1:{server.config.port}"), app.state.catalog


def ask(client: openai.OpenAI, model: str) -> str:
    answer = client.completions.create(model=model, prompt="a", temperature=0, max_tokens=50)
    assert answer.model == model
    return answer.choices[0].text


def test_each_is_loaded_when_it_is_asked_for(shelf: Shelf) -> None:
    with serving([shelf.file("one", "first"), shelf.file("two", "second")]) as (client, _):
        assert [model.id for model in client.models.list()] == ["one", "two"]
        assert shelf.events == []
        assert ask(client, "two") == "second"
        assert shelf.events == ["load two"]
        assert (ask(client, "one"), ask(client, "two")) == ("first", "second")
        with pytest.raises(openai.NotFoundError, match="no model 'three'; this server has: one, two"):
            ask(client, "three")
        url = str(client.base_url)
        unnamed = httpx.post(f"{url}completions", json={"prompt": "a", "temperature": 0}).json()
        assert (unnamed["model"], unnamed["choices"][0]["text"]) == ("one", "first")
    assert shelf.events == ["load two", "load one", "unload two", "unload one"]


def test_requests_wait_while_a_model_loads(shelf: Shelf) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def wait(name: str) -> None:
        if name == "one":
            begun.set()
            assert go_on.wait(60)

    files = [shelf.file("one", "first"), shelf.file("two", "second")]
    with serving(files, parallel=1) as (client, _), ThreadPoolExecutor() as threads:
        assert ask(client, "two") == "second"
        shelf.before_load = wait
        waiting = [threads.submit(ask, client, "one") for _ in range(3)]
        assert begun.wait(60)
        assert ask(client, "two") == "second"  # nobody else waits
        go_on.set()
        assert [each.result(60) for each in waiting] == ["first"] * 3
    assert shelf.events.count("load one") == 1


def test_a_failed_load_is_answered_and_tried_again(shelf: Shelf) -> None:
    def fail(name: str) -> None:
        shelf.before_load = lambda name: None
        raise PteronError("its file is damaged")

    shelf.before_load = fail
    with serving([shelf.file("one", "first")]) as (client, _):
        with pytest.raises(
            openai.InternalServerError, match="'one' could not be loaded: its file is damaged"
        ):
            ask(client, "one")
        assert ask(client, "one") == "first"


def test_an_idle_model_is_unloaded(shelf: Shelf) -> None:
    files = [shelf.file("one", "first"), shelf.file("two", "second")]
    with serving(files, idle_seconds=0) as (client, catalog):
        assert ask(client, "one") == "first"
        wait_until(lambda: not catalog.loaded)
        assert ask(client, "one") == "first"
    assert shelf.events[:3] == ["load one", "unload one", "load one"]


def test_idle_models_make_room(shelf: Shelf) -> None:
    files = [shelf.file(name, text) for name, text in (("a", "first"), ("b", "second"), ("c", "third"))]
    with serving(files, memory=250 * MIB) as (client, _):
        for name in "abac":  # b is the least recently used
            ask(client, name)
        assert shelf.events == ["load a", "load b", "unload b", "load c"]


def test_a_model_in_use_is_not_unloaded(shelf: Shelf) -> None:
    """The other model waits until the answer is complete."""
    files = [shelf.file("one", "a long story"), shelf.file("two", "second")]
    with serving(files, memory=150 * MIB) as (client, catalog), ThreadPoolExecutor() as threads:
        wait_until(lambda: bool(ask(client, "one")))
        held = catalog.loaded[0]
        held.users += 1  # as a request does that is being answered
        second = threads.submit(ask, client, "two")
        wait_until(lambda: catalog._waits_for_room)
        assert not second.done()
        assert shelf.events == ["load one"]
        held.users -= 1
        catalog._released._loop.call_soon_threadsafe(catalog._released.set)
        assert second.result(60) == "second"
    assert shelf.events[:3] == ["load one", "unload one", "load two"]


def test_a_model_that_is_too_large_is_refused(shelf: Shelf) -> None:
    files = [shelf.file("large", "first", 300), shelf.file("small", "second")]
    with serving(files, memory=200 * MIB) as (client, _):
        with pytest.raises(openai.InternalServerError, match=r"needs 300 MiB, but .* may use 200 MiB"):
            ask(client, "large")
        assert ask(client, "small") == "second"


def test_two_models_need_two_names(shelf: Shelf) -> None:
    with pytest.raises(InputError, match="two models have the name 'one'"):
        create_app([shelf.file("one", "first"), shelf.file("one", "second")])
    with pytest.raises(InputError, match="at least one"):
        create_app([])
