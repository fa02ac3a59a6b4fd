"""Functions of ExecuTorch are replaced for one thread and for a while."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from pteron.tools.exporter.replaced import replaced


@pytest.fixture
def package() -> Any:
    return SimpleNamespace(answer=lambda: "theirs")


def elsewhere(function: Any) -> Any:
    """The result in another thread."""
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(function()))
    thread.start()
    thread.join(10)
    return results[0]


def test_only_this_thread_sees_the_other_function(package: Any) -> None:
    theirs = package.answer
    with replaced(package, "answer", lambda before: lambda: f"not {before()}"):
        assert package.answer() == "not theirs" and elsewhere(lambda: package.answer()) == "theirs"
        with replaced(package, "answer", lambda before: lambda: f"really {before()}"):
            assert package.answer() == "really not theirs"
    assert package.answer is theirs


def test_threads_take_turns_and_each_restores_the_original(package: Any) -> None:
    theirs, inside, go_on = package.answer, threading.Event(), threading.Event()
    found: list[Any] = []

    def first() -> None:
        with replaced(package, "answer", lambda before: before):
            inside.set()
            go_on.wait(10)

    def second() -> None:
        with replaced(package, "answer", lambda before: found.append(before) or before):
            pass

    threads = [threading.Thread(target=first), threading.Thread(target=second)]
    threads[0].start()
    inside.wait(10)
    threads[1].start()
    go_on.set()
    for thread in threads:
        thread.join(10)
    assert found == [theirs] and package.answer is theirs


def test_it_is_restored_after_an_error(package: Any) -> None:
    theirs = package.answer
    with pytest.raises(ZeroDivisionError), replaced(package, "answer", lambda before: before):
        raise ZeroDivisionError
    assert package.answer is theirs
