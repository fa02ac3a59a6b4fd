"""Eight conversations in one call: their texts are those of the same conversations one after another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import pteron.llm
from pteron.engine.devices.opening import Device
from pteron.llm import LanguageModel, Tokenizer
from pteron.llm.decoder import Segment
from tests.llm.tiny_llama import tokenizer_json
from tests.llm.tiny_models import Tiny, write_gguf

PARALLEL = 8
ANSWER: Any = {"max_new_tokens": 12, "eos_token_id": []}


@pytest.fixture(scope="module", params=["converted", "from ExecuTorch"])
def many(
    request: pytest.FixtureRequest, device: Device, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LanguageModel]:
    """A model that runs eight conversations in one call."""
    tokenizer = None
    if request.param == "converted":
        folder = tmp_path_factory.mktemp("converted")
        source = write_gguf(folder / "tiny.gguf", Tiny("llama"))
        path = folder / "tiny.pte"
        pteron.llm.convert(source, path, max_seq_len=16)
    else:
        path = request.getfixturevalue("stock") / "model.pte"
        tokenizer = Tokenizer(tokenizer_json())
    with pteron.llm.load(path, device=device, tokenizer=tokenizer, parallel=PARALLEL) as model:
        yield model


@pytest.fixture(scope="module")
def prompts(many: LanguageModel) -> list[list[int]]:
    """Of different lengths, some of them longer than one call. Two have the same beginning."""
    random = np.random.default_rng(1)
    size = min(many.decoder.vocab_size, 128)
    made: list[list[int]] = [random.integers(0, size, n).tolist() for n in (1, 5, 3, 40, 2, 17, 9, 30, 4, 22)]
    made[8] = [*made[3][:20], *made[8]]
    return made


def test_eight_at_once_write_what_each_writes_alone(many: LanguageModel, prompts: list[list[int]]) -> None:
    assert many.decoder.parallel == PARALLEL
    want = []
    for prompt in prompts:
        many.sessions.close()
        want.append(many.generate(prompt, **ANSWER).tokens)
    assert len({tuple(tokens) for tokens in want}) > 5
    many.sessions.close()
    calls, together = [], many.decoder.logits_many
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(many.decoder, "logits_many", lambda parts: calls.append(len(parts)) or together(parts))
        got = [answer.tokens for answer in many.generate(prompts, **ANSWER)]
    assert got == want
    assert max(calls) == PARALLEL


def test_a_failed_call_changes_no_conversation(many: LanguageModel, prompts: list[list[int]]) -> None:
    many.sessions.close()
    decoder = many.decoder
    states = [decoder.new_state() for _ in range(3)]
    first = [Segment(prompt, 0, state) for prompt, state in zip(prompts[:3], states, strict=True)]
    decoder.logits_many(first)
    wanted = decoder.logits_many([Segment([7], len(p), s) for (p, _, s, _) in first])
    with pytest.raises(pteron.InputError):
        beyond = decoder.context_length
        decoder.logits_many(
            [*(Segment([9], len(p), s) for p, _, s, _ in first[:2]), Segment([9], beyond, states[2])]
        )
    again = decoder.logits_many([Segment([7], len(p), s) for (p, _, s, _) in first])
    np.testing.assert_array_equal(again, wanted)
    for state in states:
        state.close()


def test_an_idle_session_makes_room_for_a_new_one(many: LanguageModel, prompts: list[list[int]]) -> None:
    many.generate(prompts[:PARALLEL], **ANSWER)
    assert len(many.sessions) == PARALLEL
    sessions = [many.session() for _ in range(PARALLEL)]
    assert len(many.sessions) == 0
    sessions.append(many.session())  # it takes the KV cache of one that is not answering
    for session in sessions:
        session.close()
    assert len(many.generate(prompts, **ANSWER)) == len(prompts)


def test_memory_limits_the_conversations(many: LanguageModel, device: Device) -> None:
    assert many.origin is not None
    limit = 3 * many.decoder.kv_nbytes + 1
    with many.origin(device=device, kv_memory=limit) as fewer:
        assert (fewer.decoder.parallel, fewer.decoder.slots) == (3, 3)
        assert fewer.decoder.kv_nbytes == many.decoder.kv_nbytes
