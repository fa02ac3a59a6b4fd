"""More conversations than the model has KV caches for: they take turns, or wait for the end of an answer."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import pteron.llm
from pteron.engine import slots
from pteron.engine.devices.opening import Device
from pteron.errors import OutOfMemory, PteronError
from pteron.llm import LanguageModel
from tests.llm.tiny_models import Tiny, write_gguf

PARALLEL = 2
ANSWER: Any = {"max_new_tokens": 6, "eos_token_id": []}
PROMPTS = [[5, 9, 2, 7], [11, 3, 8], [1, 2, 3, 4, 5], [21, 4], [17, 30, 6]]


@pytest.fixture(scope="module")
def model(device: Device, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LanguageModel]:
    folder = tmp_path_factory.mktemp("waiting")
    source = write_gguf(folder / "tiny.gguf", Tiny("llama"))
    pteron.llm.convert(source, folder / "tiny.pte", max_seq_len=16)
    with pteron.llm.load(folder / "tiny.pte", device=device, parallel=PARALLEL) as model:
        yield model


@pytest.fixture
def two(model: LanguageModel) -> Iterator[LanguageModel]:
    """A model for two conversations, both free."""
    model.sessions.close()
    assert model.decoder.free_states == PARALLEL
    yield model
    model.sessions.close()


@pytest.fixture(scope="module")
def alone(model: LanguageModel) -> list[list[int]]:
    """What each prompt is answered alone."""
    answers = []
    for prompt in PROMPTS:
        answers.append(model.generate(prompt, **ANSWER).tokens)
        model.sessions.close()
    assert len({tuple(tokens) for tokens in answers}) == len(PROMPTS)
    return answers


def test_sessions_that_take_turns_keep_their_conversations(
    two: LanguageModel, alone: list[list[int]], tmp_path: Any
) -> None:
    sessions = [two.session() for _ in PROMPTS]
    for session, prompt, want in zip(sessions, PROMPTS, alone, strict=True):
        assert session.generate(prompt, **ANSWER).tokens == want
    for session, prompt, want in zip(sessions, PROMPTS, alone, strict=True):
        more = session.generate([*prompt, *want], **ANSWER)
        assert more.stats.cached_tokens == len(prompt) + len(want) - 1  # nothing was computed again
        session.save(tmp_path / "saved")  # also those whose KV cache is away
        again = two.load_session(tmp_path / "saved")
        assert again.tokens == session.tokens
        again.close()
        longer = [*prompt, *want, *more.tokens]
        expected = two.generate(longer, **ANSWER).tokens
        assert session.generate(longer, **ANSWER).tokens == expected
    sessions[0].reset()
    two.generate(PROMPTS, **ANSWER)  # takes all KV caches
    assert sessions[0].generate(PROMPTS[0], **ANSWER).tokens == alone[0]
    for session in sessions:
        session.close()
        session.close()


def test_answers_in_more_threads_wait_for_each_other(two: LanguageModel, alone: list[list[int]]) -> None:
    with ThreadPoolExecutor(len(PROMPTS)) as threads:
        answers = list(threads.map(lambda prompt: two.generate(prompt, **ANSWER).tokens, PROMPTS))
    assert answers == alone


def test_answers_wait_if_the_device_has_less_memory_than_expected(
    model: LanguageModel, alone: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_much(*_: Any) -> Any:
        raise OutOfMemory("no more")

    assert model.origin is not None
    with model.origin(device=model.program.device) as fresh, ThreadPoolExecutor(3) as threads:
        monkeypatch.setattr(slots, "State", too_much)
        first = fresh.stream(PROMPTS[0], **ANSWER)
        next(first)
        others = [threads.submit(fresh.generate, prompt, **ANSWER) for prompt in PROMPTS[1:3]]
        assert [piece.token for piece in first] == alone[0][1:]
        assert [other.result().tokens for other in others] == alone[1:3]
        assert len(fresh.sessions) == 1


def test_an_answer_that_would_wait_for_its_own_thread_is_refused(
    two: LanguageModel, alone: list[list[int]]
) -> None:
    first, second, third = (two.stream(prompt, **ANSWER) for prompt in PROMPTS[:3])
    next(first), next(second)
    with pytest.raises(PteronError, match="all 2 KV caches are in use"):
        next(third)
    assert [p.token for p in first] == alone[0][1:]
    assert two.generate(PROMPTS[2], **ANSWER).tokens == alone[2]
    second.close()


def test_two_threads_that_wait_for_each_other_are_not_stuck(two: LanguageModel) -> None:
    both = threading.Barrier(2)

    def answers(prompt: list[int]) -> bool:
        with two.stream(prompt, **ANSWER) as held:
            next(held)
            both.wait()
            try:
                two.generate(PROMPTS[4], **ANSWER)
            except PteronError:
                return False
            return True

    with ThreadPoolExecutor(2) as threads:
        done = list(threads.map(answers, PROMPTS[:2]))
    assert sorted(done) == [False, True]


def test_a_waiting_answer_can_be_cancelled(two: LanguageModel) -> None:
    held = [two.stream(prompt, **ANSWER) for prompt in PROMPTS[:2]]
    for stream in held:
        next(stream)
    waiting = two.stream(PROMPTS[2], **ANSWER)
    with ThreadPoolExecutor(1) as thread:
        piece = thread.submit(next, waiting)
        waiting.cancel()
        assert piece.result().finish_reason == "cancelled"
    for stream in held:
        assert next(stream).finish_reason is None
        stream.close()


def test_a_batch_goes_on_with_the_states_that_are_left(two: LanguageModel, alone: list[list[int]]) -> None:
    with two.session().stream(PROMPTS[0], **ANSWER) as held:
        next(held)
        assert [g.tokens for g in two.generate(PROMPTS, **ANSWER)] == alone
        assert [p.token for p in held] == alone[0][1:]
