"""Conversations on one copy of the weights: apart from each other, and cheaper with every turn."""

from __future__ import annotations

import threading
from itertools import zip_longest
from typing import Any

import pytest

from pteron.errors import PteronError
from pteron.llm import Generation, LanguageModel
from tests.llm.tiny_llama import MAX_LENGTH

ONE, OTHER = "hello world, the", "entirely different text"


def test_interleaved_conversations_do_not_influence_each_other(llm: LanguageModel) -> None:
    want = [llm.session().generate(p, max_new_tokens=15, eos_token_id=[]).tokens for p in (ONE, OTHER)]
    streams = [llm.session().stream(p, max_new_tokens=15, eos_token_id=[]) for p in (ONE, OTHER)]
    got: list[list[int | None]] = [[], []]
    for pair in zip_longest(*streams):
        for tokens, piece in zip(got, pair, strict=True):
            tokens.append(piece.token)
    assert got == want
    assert want[0] != want[1]


def test_streams_without_a_session_do_not_disturb_each_other(llm: LanguageModel) -> None:
    want = [llm.session().generate(p, max_new_tokens=6, eos_token_id=[]).tokens for p in (ONE, OTHER)]
    pairs = zip(*(llm.stream(p, max_new_tokens=6, eos_token_id=[]) for p in (ONE, OTHER)), strict=True)
    assert [list(tokens) for tokens in zip(*([p.token for p in pair] for pair in pairs), strict=True)] == want


def test_sessions_share_the_weights(llm: LanguageModel) -> None:
    device, method = llm.program.device, llm.decoder.method
    before = device.allocated_nbytes
    session = llm.session()
    assert device.allocated_nbytes - before == method.memory.state
    session.close()
    assert device.allocated_nbytes == before


def test_a_turn_runs_only_its_new_tokens(llm: LanguageModel) -> None:
    session = llm.session()
    prompt = llm.encode(ONE)
    first = session.generate(prompt, max_new_tokens=5, eos_token_id=[])
    assert first.stats.cached_tokens == 0
    assert session.tokens == prompt + first.tokens[:-1]  # the last token was never run
    longer = [*prompt, *first.tokens, *llm.encode(" and more")]
    second = session.generate(longer, max_new_tokens=5, eos_token_id=[])
    assert second.stats.cached_tokens == len(prompt) + 4
    assert second.tokens == llm.session().generate(longer, max_new_tokens=5, eos_token_id=[]).tokens


def test_a_changed_history_runs_from_the_first_change(llm: LanguageModel) -> None:
    session = llm.session()
    session.generate("abcdef", max_new_tokens=5, eos_token_id=[])
    answer = session.generate("abcXef", max_new_tokens=5, eos_token_id=[])
    assert answer.stats.cached_tokens == 3
    assert answer.tokens == llm.session().generate("abcXef", max_new_tokens=5, eos_token_id=[]).tokens


def test_the_same_seed_gives_the_same_answer_when_the_prompt_is_known(llm: LanguageModel) -> None:
    """Bit by bit: a prompt that is known is not run again by other kernels, which sum in another order."""
    options: Any = {"max_new_tokens": 8, "temperature": 1.5, "seed": 3, "logprobs": True, "eos_token_id": []}
    prompt = llm.encode("the same prompt, twice")

    def probabilities(answer: Generation) -> list[tuple[int, float]]:
        return [(item.token, item.logprob) for item in answer.logprobs]

    fresh = llm.session().generate(prompt, **options)
    session = llm.session()
    for _ in range(3):
        assert probabilities(session.generate(prompt, **options)) == probabilities(fresh)
    assert session.generate(prompt, **options).stats.cached_tokens == len(prompt)
    session.generate(prompt[:-1], max_new_tokens=1)  # the end of another prompt is forgotten
    assert session.generate(prompt, **options).stats.cached_tokens == len(prompt) - 1
    llm.sessions.close()
    for answer in llm.choices(prompt, 3, **{**options, "seed": None, "temperature": 0}):
        first = llm.session().generate(prompt, **{**options, "temperature": 0})
        assert probabilities(answer) == probabilities(first)


def test_reset_forgets(llm: LanguageModel) -> None:
    session = llm.session()
    first = session.generate(ONE, max_new_tokens=5, eos_token_id=[])
    session.reset()
    again = session.generate(ONE, max_new_tokens=5, eos_token_id=[])
    assert again.stats.cached_tokens == 0
    assert again.tokens == first.tokens


def test_without_a_session_the_longest_common_prefix_is_reused(llm: LanguageModel) -> None:
    both = [llm.stream(p, max_new_tokens=3, eos_token_id=[]) for p in (ONE, OTHER)]
    for _ in zip(*both, strict=True):
        pass
    for stream in both:
        stream.close()
    for prompt in (OTHER, ONE, OTHER):
        stats = llm.generate(prompt, max_new_tokens=1).stats
        assert stats.cached_tokens == stats.prompt_tokens


def test_a_new_turn_ends_the_one_before(llm: LanguageModel) -> None:
    session = llm.session()
    left = session.stream(ONE, eos_token_id=[])
    next(left)
    answer = session.generate(OTHER, max_new_tokens=4, eos_token_id=[])
    assert answer.tokens == llm.session().generate(OTHER, max_new_tokens=4, eos_token_id=[]).tokens
    assert list(left) == []


def test_a_session_that_another_thread_is_using_is_refused(llm: LanguageModel) -> None:
    session = llm.session()
    inside, go_on = threading.Event(), threading.Event()

    def hold(done: int, total: int) -> None:
        inside.set()
        go_on.wait(30)

    answers: list[str] = []
    long = "x" * (2 * MAX_LENGTH)
    thread = threading.Thread(
        target=lambda: answers.append(session.generate(long, max_new_tokens=1, on_prefill=hold).finish_reason)
    )
    thread.start()
    assert inside.wait(30)
    with pytest.raises(PteronError, match="another thread"):
        session.generate(OTHER, max_new_tokens=1)
    go_on.set()
    thread.join(30)
    assert answers == ["cancelled"]
    assert session.generate(OTHER, max_new_tokens=1).stats.generated_tokens == 1


def test_many_threads_at_once(llm: LanguageModel) -> None:
    prompts = [f"{word} {n}" for n, word in enumerate(["one", "two", "three", "four", "five", "six"])]
    want = {p: llm.session().generate(p, max_new_tokens=6, eos_token_id=[]).tokens for p in prompts}
    got: dict[str, list[int]] = {}

    def run(prompt: str) -> None:
        got[prompt] = llm.generate(prompt, max_new_tokens=6, eos_token_id=[]).tokens

    threads = [threading.Thread(target=run, args=(prompt,)) for prompt in prompts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert got == want
