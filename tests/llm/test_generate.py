"""Tokens equal to torch's, text that is never broken, and endings that are always said."""

from __future__ import annotations

import gc
import importlib
import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pteron.llm
from pteron.engine.devices.opening import Device
from pteron.engine.devices.wgpu.wgpu_device import WgpuDevice
from pteron.errors import InputError, PteronError
from pteron.llm import ChatTemplate, ContextFull, Detokenizer, LanguageModel, Tokenizer
from pteron.llm.decoder import Segment
from pteron.llm.tokenizer import StopStrings
from tests.llm.reciter import reciter
from tests.llm.tiny_llama import CONTEXT, GREEDY_PROMPTS, GREEDY_TOKENS, MAX_LENGTH, tokenizer_json
from tests.support import DATA

LONG = "the quick brown fox jumps over the lazy dog, "  # more than one chunk


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer(tokenizer_json())


# -- tokens -------------------------------------------------------------------------------------


@pytest.mark.parametrize("prompt", GREEDY_PROMPTS)
def test_greedy_tokens_equal_torch(llm: LanguageModel, model_folder: Path, prompt: str) -> None:
    want = json.loads((model_folder / "greedy.json").read_text())[prompt]
    got = llm.generate(prompt, max_new_tokens=GREEDY_TOKENS, eos_token_id=[])
    assert got.tokens == want
    assert got.finish_reason == "length"


@pytest.mark.parametrize("chunk", [1, 5, MAX_LENGTH, 1000])
def test_prompts_in_chunks_give_the_same_answer(llm: LanguageModel, chunk: int) -> None:
    want = llm.session().generate(LONG, max_new_tokens=8, eos_token_id=[])
    got = llm.session().generate(LONG, max_new_tokens=8, eos_token_id=[], prefill_chunk=chunk)
    assert len(llm.encode(LONG)) > MAX_LENGTH
    assert got.tokens == want.tokens


def test_progress_of_the_prompt_is_reported(llm: LanguageModel) -> None:
    seen: list[tuple[int, int]] = []
    llm.session().generate(LONG, max_new_tokens=1, on_prefill=lambda done, all_: seen.append((done, all_)))
    count = len(llm.encode(LONG))
    assert [done for done, _ in seen] == [*range(MAX_LENGTH, count, MAX_LENGTH), count]
    assert {all_ for _, all_ in seen} == {count}


def test_seeds_reproduce_a_text(llm: LanguageModel) -> None:
    def text(seed: int) -> str:
        return llm.generate("hello", temperature=1.0, top_p=0.9, seed=seed, max_new_tokens=20).text

    assert text(5) == text(5)
    assert text(5) != text(6)


def test_nothing_is_allocated_or_compiled_after_the_first_answer(llm: LanguageModel) -> None:
    llm.generate("hello", max_new_tokens=2)
    device = llm.program.device
    before = device.allocations, device.compilations
    llm.generate(LONG, max_new_tokens=5)
    assert (device.allocations, device.compilations) == before


def test_only_the_last_row_of_logits_is_read_back(llm: LanguageModel) -> None:
    method, state = llm.decoder.method, llm.decoder.new_state()
    for length in (MAX_LENGTH, 5, 1):
        inputs = (np.arange(length, dtype=np.int64)[None], np.zeros(1, np.int64))
        row = method.execute(inputs, state=state, last_row=True)[0]
        np.testing.assert_array_equal(row, method(*inputs, state=state)[0, -1])
    state.close()


def test_metadata_does_not_run_the_gpu(
    model_folder: Path, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert device.route_features  # a kernel measures them, once
    monkeypatch.setattr(WgpuDevice, "submit", None)
    with pteron.load(model_folder / "model.pte", device=device, methods=()) as program:
        assert program.method("get_max_context_len")() == CONTEXT
        assert program.method("use_kv_cache")() is True
        assert len(program.method("get_eos_ids")()) == 2


# -- endings ------------------------------------------------------------------------------------


def test_the_end_of_the_context_ends_the_answer(llm: LanguageModel) -> None:
    answer = llm.generate("hello", eos_token_id=[])
    assert answer.finish_reason == "length"
    assert len(llm.encode("hello")) + len(answer.tokens) == CONTEXT + 1  # the last token is never run


def test_a_prompt_may_fill_the_context(llm: LanguageModel) -> None:
    answer = llm.generate([5] * CONTEXT, eos_token_id=[])
    assert (len(answer.tokens), answer.finish_reason) == (1, "length")


def test_a_prompt_beyond_the_context_is_refused_before_anything_runs(llm: LanguageModel) -> None:
    with pytest.raises(ContextFull, match=f"{CONTEXT + 1} tokens.*has {CONTEXT}"):
        llm.stream([5] * (CONTEXT + 1))


def test_end_tokens_end_the_answer_and_are_not_in_the_text(llm: LanguageModel) -> None:
    free = llm.generate("hello", max_new_tokens=6, eos_token_id=[])
    ended = llm.generate("hello", max_new_tokens=6, eos_token_id=free.tokens[3])
    assert ended.finish_reason == "stop"
    assert ended.tokens == free.tokens[: free.tokens.index(free.tokens[3]) + 1]
    assert ended.text == llm.tokenizer.decode(ended.tokens[:-1])


def test_the_last_piece_has_the_reason_and_the_statistics(llm: LanguageModel) -> None:
    *pieces, last = llm.session().stream(LONG, max_new_tokens=4, eos_token_id=[])
    assert all(piece.finish_reason is None and piece.stats is None for piece in pieces)
    assert last.finish_reason == "length"
    assert last.stats is not None
    assert (last.stats.prompt_tokens, last.stats.generated_tokens) == (len(llm.encode(LONG)), 4)
    assert last.stats.prompt_tokens_per_second > 0
    assert last.stats.generation_tokens_per_second > 0
    assert 0 < last.stats.time_to_first_token < 60
    assert last.stats.gpu_nbytes > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [({"max_new_tokens": 0}, "max_new_tokens"), ({"stop": ["x", ""]}, "empty"), ({"stop": ""}, "empty")],
)
def test_invalid_options_are_refused(llm: LanguageModel, options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        llm.stream("hello", **options)  # type: ignore[arg-type]


def test_unknown_options_and_bad_prompts_are_refused(llm: LanguageModel) -> None:
    with pytest.raises(TypeError, match=r"tempreature.*temperature"):
        llm.stream("hello", tempreature=1)  # type: ignore[call-arg]
    with pytest.raises(InputError, match="empty"):
        llm.stream("")
    with pytest.raises(InputError, match="token 1 is 100000"):
        llm.stream([1, 100000])


# -- cancellation -------------------------------------------------------------------------------


def test_cancelled_in_the_prompt(llm: LanguageModel) -> None:
    session = llm.session()
    stream = session.stream(LONG, max_new_tokens=4, on_prefill=lambda done, total: stream.cancel())
    (piece,) = list(stream)
    assert (piece.finish_reason, piece.token, piece.text) == ("cancelled", None, "")
    assert len(session.tokens) == MAX_LENGTH
    assert (
        session.generate(LONG, max_new_tokens=4).tokens
        == llm.session().generate(LONG, max_new_tokens=4).tokens
    )


def test_cancelled_in_the_answer(llm: LanguageModel) -> None:
    want = llm.session().generate("hello", max_new_tokens=12, eos_token_id=[]).tokens
    session = llm.session()
    stream = session.stream("hello", max_new_tokens=12, eos_token_id=[])
    first, second = next(stream), next(stream)
    stream.cancel()
    rest = list(stream)
    assert [first.token, second.token] == want[:2]
    assert [piece.finish_reason for piece in rest] == ["cancelled"]
    assert session.generate("hello", max_new_tokens=12, eos_token_id=[]).tokens == want


def test_cancelled_from_another_thread(llm: LanguageModel) -> None:
    stream = llm.stream("hello", eos_token_id=[])
    begun = threading.Event()
    threading.Thread(target=lambda: begun.wait(30) and stream.cancel()).start()
    reasons = []
    for piece in stream:
        begun.set()
        reasons.append(piece.finish_reason)
        if not piece.finish_reason:
            threading.Event().wait(0.005)
    assert reasons[-1] == "cancelled"
    assert llm.generate("hello", max_new_tokens=3, eos_token_id=[]).finish_reason == "length"


# -- the next run starts before a piece is shown -------------------------------------------------


def noted_starts(llm: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of tokens in each run that was started."""
    starts: list[int] = []
    start = llm.decoder.start
    monkeypatch.setattr(
        llm.decoder, "start", lambda segment: starts.append(len(segment.tokens)) or start(segment)
    )
    return starts


def test_the_gpu_works_while_the_caller_has_a_piece(
    llm: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts, prompt = noted_starts(llm, monkeypatch), llm.encode("hello")
    with llm.session().stream("hello", max_new_tokens=3, eos_token_id=[]) as stream:
        counts = [len(starts) for _ in stream]
    assert counts == [2, 3, 3], "no run follows the last piece"
    assert starts == [len(prompt), 1, 1]


@pytest.mark.parametrize("pieces", [1, 3])
def test_a_run_that_nobody_reads_changes_nothing(llm: LanguageModel, pieces: int) -> None:
    session = llm.session()
    want = llm.session().generate("hello world", max_new_tokens=8, eos_token_id=[]).tokens
    stream = session.stream("hello world", max_new_tokens=8, eos_token_id=[])
    got = [next(stream).token for _ in range(pieces)]
    prompt = llm.encode("hello world")
    assert session.tokens == [*prompt, *got[:-1]]
    stream.close()
    assert (
        session.generate([*prompt, *got], max_new_tokens=8 - pieces, eos_token_id=[]).tokens == want[pieces:]
    )


def test_a_run_that_cannot_start_fails_after_the_piece(
    llm: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = llm.decoder.start

    def refusing(segment: Segment[Any]) -> Any:
        if segment.position >= len(llm.encode("hello")) + 1:
            raise PteronError("refused")
        return start(segment)

    monkeypatch.setattr(llm.decoder, "start", refusing)
    stream = llm.session().stream("hello", max_new_tokens=8, eos_token_id=[])
    assert [next(stream).token is None for _ in range(2)] == [False, False]
    with pytest.raises(PteronError, match="refused"):
        next(stream)


def test_a_stream_that_is_not_read_to_the_end_releases_its_session(llm: LanguageModel) -> None:
    llm.generate("hello", max_new_tokens=1)
    idle = len(llm.sessions)
    assert idle > 0
    gc.disable()
    try:
        for piece in llm.stream("hello", eos_token_id=[]):
            assert piece.token is not None
            assert len(llm.sessions) == idle - 1
            break
        del piece
        assert len(llm.sessions) == idle
    finally:
        gc.enable()


# -- text ---------------------------------------------------------------------------------------


TEXT = "naïve 🙂 日本 👩‍👩‍👧 \ufffd end"


def test_characters_are_never_split(tokenizer: Tokenizer) -> None:
    llm = reciter(single_bytes(tokenizer, TEXT))
    pieces = list(llm.stream("a"))
    assert "".join(piece.text for piece in pieces) == TEXT
    assert len(pieces) == len(TEXT.encode()) + 1
    shown = [piece.text for piece in pieces if piece.text]
    assert "🙂" in shown and "日" in shown


def single_bytes(tokenizer: Tokenizer, text: str) -> list[int]:
    """A text as one token per byte, whatever longer tokens there are."""
    from tokenizers import pre_tokenizers

    letters = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(text)[0][0]
    return [found for letter in letters if (found := tokenizer.id_of(letter)) is not None]


@given(byte_tokens=st.lists(st.integers(0, 255), max_size=200))
def test_any_bytes_stream_to_what_they_decode_to(tokenizer: Tokenizer, byte_tokens: list[int]) -> None:
    detokenizer = Detokenizer(tokenizer)
    pieces = [detokenizer.push(token) for token in byte_tokens] + [detokenizer.finish()]
    assert "".join(pieces) == tokenizer.decode(byte_tokens)


def test_the_window_of_invalid_bytes_is_limited(tokenizer: Tokenizer) -> None:
    lone = next(i for i in range(256) if tokenizer.decode([i]) == "\ufffd")
    detokenizer = Detokenizer(tokenizer)
    text = "".join(detokenizer.push(lone) for _ in range(1000)) + detokenizer.finish()
    assert text == "\ufffd" * 1000
    assert len(detokenizer._window) <= 65


def test_words_keep_the_space_before_them() -> None:
    """SentencePiece's decoders drop the space that begins a text, and no other."""
    from tokenizers import Tokenizer as Made
    from tokenizers import decoders, models

    words = Made(models.WordLevel({"▁one": 0, "▁two": 1, "<0xE2>": 2, "<0x82>": 3, "<0xAC>": 4, "!": 5}, "!"))
    words.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    detokenizer = Detokenizer(Tokenizer(words.to_str()))
    assert [detokenizer.push(t) for t in (0, 1, 2, 3, 4, 5, 0)] == ["one", " two", "", "", "€", "!", " one"]


def test_an_unfinished_character_comes_out_at_the_end(tokenizer: Tokenizer) -> None:
    half = single_bytes(tokenizer, "a🙂")[:3]
    assert reciter(half).generate("a").text == "a\ufffd"


# -- stop strings -------------------------------------------------------------------------------


@pytest.mark.parametrize("stop", ["STOP", ["never", "STOP"], ["STOP", "OP"], "OP now", ["TOP", "STOPS"]])
def test_stop_strings_never_leak(stop: str | list[str]) -> None:
    text = "one STSTOP now and more"
    stops = [stop] if isinstance(stop, str) else stop
    answer = reciter(text).generate("a", stop=stop)
    first = min(place for s in stops if (place := text.find(s)) >= 0)
    assert (answer.text, answer.finish_reason) == (text[:first], "stop")


def test_text_that_only_begins_like_a_stop_string_is_returned() -> None:
    assert reciter("a STO").generate("a", stop="STOP").text == "a STO"
    assert reciter("a STO").generate("a", stop="STOP", max_new_tokens=3).text == "a S"


def test_stop_strings_in_a_real_answer(llm: LanguageModel) -> None:
    free = llm.generate("hello", max_new_tokens=20, eos_token_id=[]).text
    stop = free[7:10]
    answer = llm.generate("hello", max_new_tokens=20, eos_token_id=[], stop=stop)
    assert (answer.text, answer.finish_reason) == (free[: free.index(stop)], "stop")
    assert answer.stats.generated_tokens < 20


@given(st.text("ab🙂", max_size=30), st.lists(st.text("ab🙂", min_size=1, max_size=4), max_size=3), st.data())
def test_stop_strings_are_found_however_the_text_is_cut(
    text: str, stops: list[str], data: st.DataObject
) -> None:
    watch, shown, rest = StopStrings(stops), "", text
    while rest and not watch.found:
        cut = data.draw(st.integers(1, len(rest)))
        shown += watch.push(rest[:cut])
        rest = rest[cut:]
    shown += "" if watch.found else watch.finish()
    assert watch.found == any(stop in text for stop in stops)
    assert text.startswith(shown)
    assert not any(stop in shown for stop in stops)
    if not watch.found:
        assert shown == text


# -- files --------------------------------------------------------------------------------------


def test_tokenizer_and_template_beside_the_file(
    llm: LanguageModel, model_folder: Path, device: Device
) -> None:
    with pteron.llm.load(model_folder / "bare" / "model.pte", device=device) as beside:
        messages = [{"role": "user", "content": "hi"}]
        assert beside.encode(messages) == llm.encode(messages)
        assert beside.special_tokens["eos_token"] == "<|im_end|>"


def test_the_error_for_a_missing_tokenizer_names_the_argument(model_folder: Path, device: Device) -> None:
    data = (model_folder / "bare" / "model.pte").read_bytes()
    with pytest.raises(InputError, match="tokenizer="):
        pteron.llm.load(data, device=device)
    with pteron.llm.load(data, device=device, tokenizer=model_folder / "bare") as llm:
        assert llm.generate("hello", max_new_tokens=2, eos_token_id=[]).finish_reason == "length"
        with pytest.raises(pteron.PteronError, match="no chat template"):
            llm.stream([{"role": "user", "content": "hi"}])


def test_a_program_that_is_not_a_language_model_is_refused(device: Device) -> None:
    data = DATA / "dyn_rms.pte"
    with pytest.raises(pteron.UnsupportedError, match=r"forward\(tokens \[1, S\], input_pos \[1\]\)"):
        pteron.llm.load(data, device=device, tokenizer=Tokenizer(tokenizer_json()))


def test_a_smaller_context_on_request(model_folder: Path, device: Device) -> None:
    with pytest.raises(InputError, match=f"context_length is {CONTEXT + 1}.* room for 1 to {CONTEXT} tokens"):
        pteron.llm.load(model_folder / "model.pte", device=device, context_length=CONTEXT + 1)
    with pteron.llm.load(model_folder / "model.pte", device=device, context_length=20) as llm:
        answer = llm.generate("hello", eos_token_id=[])
        assert len(llm.encode("hello")) + len(answer.tokens) == 21


@pytest.mark.parametrize(
    ("package", "extra", "use"),
    [
        ("tokenizers", "llm", lambda: Tokenizer("{}")),
        ("jinja2", "llm", lambda: ChatTemplate("")),
        ("starlette", "server", lambda: importlib.reload(importlib.import_module("pteron.server"))),
    ],
)
def test_a_missing_package_is_named_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, package: str, extra: str, use: Callable[[], object]
) -> None:
    importlib.import_module("pteron.server")
    monkeypatch.setitem(sys.modules, package, None)
    hint = rf"'{package}' is needed: pip install .*, pip install '\.\[{extra}\]'"
    with pytest.raises(PteronError, match=hint):
        use()
