"""Many answers at once are those of one after the other, and each stream may join, leave, stop or fail."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pteron.errors import InputError, PteronError
from pteron.llm import LanguageModel, Piece, Sampler
from pteron.llm.answer import Answer
from pteron.llm.batch import Batch
from pteron.llm.pace import Pace
from tests.llm.tiny_llama import MAX_LENGTH

PROMPTS = ["hello world", "a", "the quick brown fox jumps over the lazy dog", "b", "xyz", "one, two, three"]
ANSWER: Any = {"max_new_tokens": 9, "eos_token_id": []}
LONG = "the quick brown fox jumps over the lazy dog, " * 2


@pytest.fixture(params=[1, 4])
def parallel(llm: LanguageModel, request: pytest.FixtureRequest) -> Iterator[int]:
    """The batch takes turns, or divides a call among four."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(llm.decoder, "parallel", request.param)
        yield request.param


@pytest.fixture
def rows(llm: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The rows of each conversation in each call."""
    calls: list[list[int]] = []
    run = llm.decoder.logits_many

    def noted(parts: Any) -> Any:
        calls.append([len(part.tokens) for part in parts])
        return run(parts)

    monkeypatch.setattr(llm.decoder, "logits_many", noted)
    return calls


def run(batch: Batch, *streams: Answer) -> dict[Answer, list[Piece | Exception]]:
    got: dict[Answer, list[Piece | Exception]] = defaultdict(list)
    for stream in streams:
        batch.add(stream)
    while len(batch):
        for stream, item in batch.step():
            got[stream].append(item)
    return got


def tokens(items: list[Piece | Exception]) -> list[int | None]:
    return [item.token for item in items if isinstance(item, Piece)]


@pytest.mark.usefixtures("parallel")
def test_many_prompts_are_answered_as_one_by_one(llm: LanguageModel) -> None:
    want = [llm.session().generate(prompt, **ANSWER) for prompt in PROMPTS]
    got = llm.generate(PROMPTS, **ANSWER)
    assert [answer.tokens for answer in got] == [answer.tokens for answer in want]
    assert [answer.text for answer in got] == [answer.text for answer in want]
    assert {answer.finish_reason for answer in got} == {"length"}
    assert [answer.stats.prompt_tokens for answer in got] == [len(llm.encode(p)) for p in PROMPTS]
    as_tokens = llm.generate([llm.encode(prompt) for prompt in PROMPTS], **ANSWER)
    assert [answer.tokens for answer in as_tokens] == [answer.tokens for answer in want]


def test_pieces_of_many_come_as_they_are_made(llm: LanguageModel, parallel: int) -> None:
    pieces = list(llm.stream_many(PROMPTS, **ANSWER))
    for number, prompt in enumerate(PROMPTS):
        text = "".join(piece.text for index, piece in pieces if index == number)
        assert text == llm.session().generate(prompt, **ANSWER).text
    first = [index for index, _ in pieces[:4]]
    assert first == [0, 0, 0, 0] if parallel == 1 else {0, 1} <= set(first)


def test_an_answer_that_is_dropped_frees_all_sessions(llm: LanguageModel) -> None:
    llm.sessions.close()
    many = llm.stream_many(PROMPTS, **ANSWER)
    next(many)
    many.close()  # type: ignore[attr-defined]
    assert len(llm.sessions) == 1


def test_what_is_not_a_list_of_prompts_is_refused(llm: LanguageModel) -> None:
    assert llm.generate([llm.encode("a")], **ANSWER)[0].tokens == llm.generate("a", **ANSWER).tokens
    with pytest.raises(InputError, match="one prompt at a time"):
        llm.generate(["a", "b"], session=llm.session(), **ANSWER)  # type: ignore[call-overload]
    with pytest.raises(InputError, match="empty"):
        llm.generate(["a", ""], **ANSWER)


@pytest.mark.parametrize("parallel", [4], indirect=True)
def test_answers_and_prompts_share_a_call(llm: LanguageModel, parallel: int, rows: list[list[int]]) -> None:
    batch = Batch(llm)
    first, second = (llm.answer(prompt, session=llm.session(), **ANSWER) for prompt in ("hello", LONG))
    batch.add(first)
    batch.step()
    got = run(batch, second)
    count = len(llm.encode(LONG))
    assert rows[1:4] == [[MAX_LENGTH - 1, 1]] * 3
    assert sum(max(part) for part in rows[1:7]) == count
    assert tokens(got[second]) == llm.session().generate(LONG, **ANSWER).tokens
    assert all(sum(call) <= MAX_LENGTH for call in rows)


@pytest.mark.parametrize("parallel", [4], indirect=True)
def test_the_pace_limits_the_rows_of_prompts(
    llm: LanguageModel, parallel: int, rows: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    pace = Pace(MAX_LENGTH)
    pace.rows = 5
    monkeypatch.setattr(pace, "note", lambda *_: None)
    run(Batch(llm, pace), *(llm.answer(prompt, session=llm.session(), **ANSWER) for prompt in PROMPTS[:3]))
    assert max(sum(count for count in call if count > 1) for call in rows) == 5


@pytest.mark.usefixtures("parallel")
def test_a_new_prompt_is_read_before_more_of_a_long_one(llm: LanguageModel) -> None:
    batch = Batch(llm)
    batch.add(llm.answer(LONG, session=llm.session(), **ANSWER))
    batch.step()
    short = llm.answer("hello", session=llm.session(), **ANSWER)
    batch.add(short)
    assert [stream for stream, _ in batch.step()] == [short]
    batch.close()


@pytest.mark.usefixtures("parallel")
def test_a_prompt_that_another_is_reading_is_read_once(llm: LanguageModel, rows: list[list[int]]) -> None:
    llm.sessions.close()
    beginning = llm.encode(LONG)
    prompts = [[*beginning, token] for token in (7, 8, 9)]
    got = run(Batch(llm), *(llm.answer(prompt, max_new_tokens=1, eos_token_id=[]) for prompt in prompts))
    assert sum(sum(call) for call in rows) == len(beginning) + 3
    assert [tokens(items) for items in got.values()] == [
        llm.session().generate(prompt, max_new_tokens=1, eos_token_id=[]).tokens for prompt in prompts
    ]


def test_a_session_keeps_its_conversation_if_another_has_the_same_beginning(llm: LanguageModel) -> None:
    llm.sessions.close()
    system = llm.encode("the system prompt: ")
    talk = [*system, *llm.encode("one long conversation")]
    run(Batch(llm), *(llm.answer(p, max_new_tokens=1) for p in (talk, llm.encode("zzz"))))
    assert len(llm.sessions) == 2
    other = llm.generate([*system, *llm.encode("hi")], max_new_tokens=1)
    assert other.stats.cached_tokens == len(system)
    assert llm.generate(talk, max_new_tokens=1).stats.cached_tokens == len(talk)


@pytest.mark.usefixtures("parallel")
@pytest.mark.parametrize("steps", [0, 1, 7])
def test_a_cancelled_stream_leaves_at_the_next_step(llm: LanguageModel, steps: int) -> None:
    llm.sessions.close()
    batch = Batch(llm)
    ends, stays = (llm.answer(prompt, **ANSWER) for prompt in (LONG, "hello"))
    for stream in (ends, stays):
        batch.add(stream)
    for _ in range(steps):
        batch.step()
    ends.cancel()
    outcomes = batch.step()
    assert [item.finish_reason for stream, item in outcomes if stream is ends] == ["cancelled"]  # type: ignore[union-attr]
    assert len(batch) == len(llm.sessions._busy) == 1
    run(batch)
    assert stays.stats.generated_tokens == 9


@pytest.mark.usefixtures("parallel")
def test_a_stream_that_fails_fails_alone(llm: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    good, bad, worse = (llm.answer(prompt, session=llm.session(), **ANSWER) for prompt in PROMPTS[:3])
    choose, together = Sampler.choose_from, llm.decoder.logits_many
    monkeypatch.setattr(
        Sampler,
        "choose_from",
        lambda self, seen: 1 / 0 if self is bad._writer._sampler else choose(self, seen),
    )

    def refusing(parts: Any) -> Any:
        if any((part.position, part.tokens[0]) == (0, worse.window.tokens[0]) for part in parts):
            raise PteronError("refused")
        return together(parts)

    monkeypatch.setattr(llm.decoder, "logits_many", refusing)
    got = run(Batch(llm), good, bad, worse)
    assert [type(item) for item in got[bad]] == [ZeroDivisionError]
    assert [str(item) for item in got[worse]] == ["refused"]
    assert tokens(got[good]) == llm.session().generate(PROMPTS[0], **ANSWER).tokens


def test_a_stream_of_a_batch_belongs_to_it(llm: LanguageModel) -> None:
    session, batch = llm.session(), Batch(llm)
    stream = llm.answer("hello", session=session, **ANSWER)
    batch.add(stream)
    batch.step()
    with pytest.raises(PteronError, match="being made already"):
        Batch(llm).add(stream)
    with pytest.raises(PteronError, match="another thread"):
        session.generate("a", **ANSWER)
    batch.close()
    assert session.generate("a", **ANSWER).tokens == llm.session().generate("a", **ANSWER).tokens


def test_an_interrupt_ends_all_streams(llm: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    llm.sessions.close()
    many, together = llm.stream_many(PROMPTS, **ANSWER), llm.decoder.logits_many
    next(many)

    def interrupted(parts: Any) -> Callable[..., Any]:
        raise KeyboardInterrupt

    monkeypatch.setattr(llm.decoder, "logits_many", interrupted)
    with pytest.raises(KeyboardInterrupt):
        next(many)
    assert len(llm.sessions) == 1
    monkeypatch.setattr(llm.decoder, "logits_many", together)
    assert llm.generate("a", **ANSWER).finish_reason == "length"
