"""Several answers to one prompt, and how probable their tokens were."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pteron.errors import InputError
from pteron.llm import LanguageModel, Piece, Stream
from pteron.llm.answer import Answer
from pteron.llm.batch import Batch
from tests.llm.tiny_llama import MAX_LENGTH

PROMPT = "the quick brown fox jumps over the lazy dog"  # several chunks


def with_seed(llm: LanguageModel, seed: int) -> list[int]:
    return (
        llm.session().generate(PROMPT, temperature=1.0, seed=seed, max_new_tokens=6, eos_token_id=[]).tokens
    )


def test_choices_have_seeds_of_their_own(llm: LanguageModel) -> None:
    answers = llm.choices(PROMPT, 3, temperature=1.0, seed=5, max_new_tokens=6, eos_token_id=[])
    assert [answer.tokens for answer in answers] == [with_seed(llm, seed) for seed in (5, 6, 7)]
    assert len({tuple(answer.tokens) for answer in answers}) == 3
    count = len(llm.encode(PROMPT))
    assert [answer.stats.cached_tokens for answer in answers[1:]] == [count] * 2


def test_answers_of_a_batch_read_the_prompt_once(llm: LanguageModel) -> None:
    llm.sessions.close()
    answers = llm.answers(PROMPT, 3, temperature=1.0, seed=5, max_new_tokens=6, eos_token_id=[])
    assert len(llm.encode(PROMPT)) > 2 * MAX_LENGTH
    runs, start = [], llm.decoder.start
    pieces: dict[Answer, list[Piece | Exception]] = {answer: [] for answer in answers}
    batch = Batch(llm)
    for answer in answers:
        batch.add(answer)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            llm.decoder, "start", lambda segment: runs.append(len(segment.tokens)) or start(segment)
        )
        while len(batch):
            for answer, piece in batch.step():
                pieces[answer].append(piece)
    tokens = [[p.token for p in got if isinstance(p, Piece)] for got in pieces.values()]
    assert tokens == [with_seed(llm, seed) for seed in (5, 6, 7)]
    assert sum(runs) == len(llm.encode(PROMPT)) + 3 * 5


def test_one_of_several_answers_may_be_used_alone(llm: LanguageModel) -> None:
    _, second = llm.answers(PROMPT, 2, temperature=1.0, seed=5, max_new_tokens=6, eos_token_id=[])
    assert [piece.token for piece in Stream(second)] == with_seed(llm, 6)
    with pytest.raises(InputError, match="n is 0"):
        llm.answers(PROMPT, 0)


def test_a_busy_session_shares_what_it_knows(llm: LanguageModel) -> None:
    llm.sessions.close()
    prompt = llm.encode(PROMPT)
    first = llm.stream(prompt, eos_token_id=[])
    next(first)
    other = [*prompt[:-3], *llm.encode("cat")]
    answer = llm.generate(other, max_new_tokens=5, eos_token_id=[])
    assert answer.stats.cached_tokens == len(prompt) - 3
    assert answer.tokens == llm.session().generate(other, max_new_tokens=5, eos_token_id=[]).tokens
    first.close()


def test_log_probabilities_are_those_of_the_model(llm: LanguageModel) -> None:
    answer = llm.generate(
        PROMPT,
        temperature=0.7,
        top_k=5,
        seed=2,
        max_new_tokens=4,
        eos_token_id=[],
        logprobs=True,
        top_logprobs=3,
    )
    state, text = llm.decoder.new_state(), llm.encode(PROMPT)
    for start in range(0, len(text), MAX_LENGTH):
        logits = llm.decoder.logits(text[start : start + MAX_LENGTH], start, state)
    assert len(answer.logprobs) == 4
    for place, (token, found) in enumerate(zip(answer.tokens, answer.logprobs, strict=True)):
        want = torch.from_numpy(np.asarray(logits)).reshape(-1).double().log_softmax(-1)
        assert found.token == token
        assert found.logprob == pytest.approx(float(want[token]), abs=1e-6)
        assert [t.token for t in found.top] == want.topk(3).indices.tolist()
        assert [t.logprob for t in found.top] == pytest.approx(want.topk(3).values.tolist(), abs=1e-6)
        logits = llm.decoder.logits([token], len(text) + place, state)
    state.close()
    assert "".join(found.text for found in answer.logprobs) == answer.text


def test_without_being_asked_for_there_are_none(llm: LanguageModel) -> None:
    answer = llm.generate("hello", max_new_tokens=2)
    assert answer.logprobs == []
    with pytest.raises(InputError, match="top_logprobs is -1"):
        llm.stream("hello", logprobs=True, top_logprobs=-1)
