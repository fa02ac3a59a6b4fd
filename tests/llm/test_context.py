"""A full context: the answer ends, or the oldest part of the conversation is dropped."""

from __future__ import annotations

from typing import Any

import pytest

from pteron.errors import InputError
from pteron.llm import ContextFull, LanguageModel
from tests.llm.tiny_llama import CONTEXT

SYSTEM = {"role": "system", "content": "hi"}


def conversation(turns: int) -> list[dict[str, str]]:
    talk = [SYSTEM]
    for number in range(turns):
        talk += [{"role": "user", "content": f"q{number}"}, {"role": "assistant", "content": f"a{number}"}]
    return [*talk, {"role": "user", "content": "last"}]


def fitting(llm: LanguageModel, room: int) -> list[dict[str, str]]:
    """A conversation that leaves exactly `room` tokens of the context free."""
    talk = conversation(2)
    missing = CONTEXT - room - len(llm.encode(talk))
    talk[1]["content"] += "x" * missing
    assert len(llm.encode(talk)) == CONTEXT - room
    return talk


def continued(llm: LanguageModel, tokens: list[int], count: int) -> list[int]:
    return llm.session().generate(tokens, max_new_tokens=count, eos_token_id=[]).tokens


def test_a_conversation_that_is_too_long_is_refused_by_default(llm: LanguageModel) -> None:
    with pytest.raises(ContextFull):
        llm.stream(conversation(20))


@pytest.mark.parametrize("turns", [5, 6, 20])
def test_the_oldest_turns_are_dropped_and_the_system_prompt_stays(llm: LanguageModel, turns: int) -> None:
    talk = conversation(turns)
    stream = llm.session().stream(talk, context_policy="shift", max_new_tokens=3, eos_token_id=[])
    kept: Any = stream.messages
    assert kept[0] == SYSTEM and kept[1]["role"] == "user"
    assert kept[1:] == talk[-len(kept) + 1 :] and len(kept) < len(talk)
    assert len(llm.encode(kept)) <= 3 / 4 * CONTEXT
    assert stream.stats.shifts == 1
    assert [piece.token for piece in stream] == continued(llm, llm.encode(kept), 3)


def test_a_conversation_that_fits_is_not_touched(llm: LanguageModel) -> None:
    talk = conversation(1)
    stream = llm.stream(talk, context_policy="shift")
    assert stream.messages == talk and stream.stats.shifts == 0


def test_the_context_fills_during_the_answer(llm: LanguageModel) -> None:
    talk, count = fitting(llm, room=5), 20
    stopped = llm.session().generate(talk, eos_token_id=[])
    assert (len(stopped.tokens), stopped.finish_reason) == (6, "length")

    session = llm.session()
    stream = session.stream(talk, context_policy="shift", max_new_tokens=count, eos_token_id=[])
    tokens = [piece.token for piece in stream]
    assert stream.messages == [SYSTEM, *talk[3:]]
    assert stream.stats.shifts == 1
    assert tokens[:6] == stopped.tokens
    assert tokens[6:] == continued(llm, [*llm.encode(stream.messages), *stopped.tokens], count - 6)
    assert session.messages == [
        *stream.messages,
        {"role": "assistant", "content": llm.tokenizer.decode(tokens)},
    ]


def test_an_end_token_in_the_last_place_drops_nothing(llm: LanguageModel) -> None:
    talk = fitting(llm, room=5)
    last = llm.session().generate(talk, eos_token_id=[]).tokens[-1]
    stream = llm.session().stream(talk, context_policy="shift", eos_token_id=last)
    *_, piece = stream
    assert piece.finish_reason == "stop" and stream.messages == talk


def test_a_last_turn_that_fills_the_context_ends_the_answer(llm: LanguageModel) -> None:
    question = {"role": "user", "content": "x" * (CONTEXT // 2)}
    answer = llm.session().generate([SYSTEM, question], context_policy="shift", eos_token_id=[])
    assert answer.finish_reason == "length" and answer.stats.shifts == 0
    assert answer.stats.prompt_tokens + len(answer.tokens) == CONTEXT + 1
    with pytest.raises(ContextFull):
        llm.stream([SYSTEM, {**question, "content": "x" * CONTEXT}], context_policy="shift")


def test_a_text_continues_after_its_older_half_is_dropped(llm: LanguageModel) -> None:
    prompt, count = llm.encode("hello"), CONTEXT + 60
    answer = llm.session().generate(prompt, context_policy="shift", max_new_tokens=count, eos_token_id=[])
    assert (len(answer.tokens), answer.finish_reason) == (count, "length")
    assert answer.stats.shifts == 2
    before = CONTEXT + 1 - len(prompt)
    left = [*prompt, *answer.tokens[:before]][-(CONTEXT // 2) :]
    assert answer.tokens[before : before + 20] == continued(llm, left, 20)


def test_cancelled_while_the_rest_is_read_again(llm: LanguageModel) -> None:
    reads: list[int] = []

    def cancel_the_second(done: int, total: int) -> None:
        if done < (reads[-1] if reads else 0):
            stream.cancel()
        reads.append(done)

    options: Any = {"context_policy": "shift", "eos_token_id": [], "prefill_chunk": 7}
    stream = llm.session().stream(fitting(llm, room=2), on_prefill=cancel_the_second, **options)
    pieces = list(stream)
    assert [piece.finish_reason for piece in pieces] == [None] * 3 + ["cancelled"]


def test_unknown_policies_are_refused(llm: LanguageModel) -> None:
    with pytest.raises(InputError, match="context_policy is 'slide': expected stop or shift"):
        llm.stream("hello", context_policy="slide")  # type: ignore[typeddict-item]
