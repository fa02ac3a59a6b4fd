"""Conversations in files: they go on where they stopped, and bad files are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import pteron.llm
from pteron.engine.devices.opening import Device
from pteron.errors import FormatError, InputError, PteronError
from pteron.llm import LanguageModel, Session
from pteron.llm.session_file import PREFIX
from tests.llm.tiny_llama import CONTEXT, HEAD, KV_HEADS

TALK = [{"role": "system", "content": "hi"}, {"role": "user", "content": "hello world"}]
POSITION = 2 * KV_HEADS * HEAD * 2  # the bytes of keys and values of one position


@pytest.fixture
def session(llm: LanguageModel) -> Session:
    session = llm.session()
    session.generate(TALK, max_new_tokens=6, eos_token_id=[])
    return session


def follow_up(session: Session) -> tuple[list[int], int]:
    asked = [*session.messages, {"role": "user", "content": "and?"}]
    answer = session.generate(asked, max_new_tokens=8, eos_token_id=[])
    return answer.tokens, answer.stats.cached_tokens


def test_a_conversation_goes_on_where_it_stopped(
    llm: LanguageModel, session: Session, model_folder: Path, device: Device, tmp_path: Path
) -> None:
    path = tmp_path / "talk"
    session.save(path)
    tokens, messages = list(session.tokens), session.messages
    assert messages[:2] == TALK and messages[2]["role"] == "assistant"
    with pteron.llm.load(model_folder / "model.pte", device=device) as other:
        loaded = other.load_session(path)
        assert (loaded.tokens, loaded.messages) == (tokens, messages)
        answer, cached = follow_up(loaded)
    assert cached >= len(tokens) - 1  # nothing of it was computed again
    assert (answer, cached) == follow_up(session)
    session.reset()
    session.messages = messages
    assert follow_up(session) == (answer, 0)


def test_only_live_positions_are_written(llm: LanguageModel, tmp_path: Path) -> None:
    session = llm.session()
    session.generate([5] * (CONTEXT - 1), max_new_tokens=1)
    session.generate("hello", max_new_tokens=1)
    session.save(tmp_path / "talk")
    written = (tmp_path / "talk").read_bytes()
    header = PREFIX.unpack(written[: PREFIX.size])[1]
    assert len(written) == PREFIX.size + header + len(session.tokens) * POSITION
    assert json.loads(written[PREFIX.size :][:header])["messages"] == []


def test_an_empty_conversation(llm: LanguageModel, tmp_path: Path) -> None:
    llm.session().save(tmp_path / "talk")
    loaded = llm.load_session(tmp_path / "talk")
    assert (loaded.tokens, loaded.messages) == ([], [])
    assert loaded.generate("hello", max_new_tokens=2).tokens == llm.generate("hello", max_new_tokens=2).tokens


def test_saving_ends_a_turn_and_replaces_the_file_at_once(
    llm: LanguageModel, session: Session, tmp_path: Path
) -> None:
    path = tmp_path / "talk"
    session.save(path)
    stream = session.stream("other text", eos_token_id=[])
    next(stream)
    session.save(path)
    assert list(stream) == []
    assert llm.load_session(path).tokens == llm.encode("other text")
    assert [p.name for p in tmp_path.iterdir()] == ["talk"]


def test_another_model_is_refused(
    llm: LanguageModel, session: Session, model_folder: Path, device: Device, tmp_path: Path
) -> None:
    session.save(tmp_path / "talk")
    with (
        pteron.llm.load(model_folder / "bare" / "model.pte", device=device) as other,
        pytest.raises(InputError, match="saved with another model"),
    ):
        other.load_session(tmp_path / "talk")


def test_another_type_of_the_cache_is_refused(
    llm: LanguageModel, session: Session, model_folder: Path, device: Device, tmp_path: Path
) -> None:
    session.save(tmp_path / "talk")
    with pteron.llm.load(model_folder / "model.pte", device=device, kv_dtype="f32") as other:
        assert other.decoder.kv_nbytes == 2 * llm.decoder.kv_nbytes
        with pytest.raises(FormatError, match="saved with another kv_dtype"):
            other.load_session(tmp_path / "talk")


def test_an_unknown_type_of_the_cache_is_refused(model_folder: Path) -> None:
    with pytest.raises(InputError, match="kv_dtype must be 'f16' or 'f32', not 'f8'"):
        pteron.llm.load(model_folder / "model.pte", kv_dtype="f8")


def test_a_context_of_another_length(
    llm: LanguageModel, session: Session, model_folder: Path, device: Device, tmp_path: Path
) -> None:
    """What does not fit is read again from the messages, or refused if there are none."""
    session.save(tmp_path / "talk")
    plain = llm.session()
    plain.generate(session.tokens[:20], max_new_tokens=1)
    plain.save(tmp_path / "plain")
    with pteron.llm.load(
        model_folder / "model.pte", device=device, context_length=len(session.tokens)
    ) as same:
        assert same.load_session(tmp_path / "talk").tokens == session.tokens
    with pteron.llm.load(model_folder / "model.pte", device=device, context_length=8) as other:
        loaded = other.load_session(tmp_path / "talk")
        assert (loaded.tokens, loaded.messages) == ([], session.messages)
        with pytest.raises(InputError, match="context, which has 8"):
            loaded.generate(loaded.messages)
        with pytest.raises(InputError, match="context has 8"):
            other.load_session(tmp_path / "plain")


def test_messages_alone(llm: LanguageModel, session: Session, tmp_path: Path) -> None:
    session.save(tmp_path / "talk", kv_cache=False)
    assert (tmp_path / "talk").stat().st_size < POSITION * len(session.tokens)
    loaded = llm.load_session(tmp_path / "talk")
    assert (loaded.tokens, loaded.messages) == ([], session.messages)
    assert follow_up(loaded) == (follow_up(session)[0], 0)


def test_damaged_files_are_refused(llm: LanguageModel, session: Session, tmp_path: Path) -> None:
    path = tmp_path / "talk"
    session.save(path)
    good = path.read_bytes()
    nbytes = llm.program.device.allocated_nbytes
    for place in [*range(0, PREFIX.size + 400, 7), *range(500, len(good), 997), len(good) - 1]:
        path.write_bytes(good[:place] + bytes([good[place] ^ 0x41]) + good[place + 1 :])
        with pytest.raises(PteronError, match="talk: "):
            llm.load_session(path)
    for data in (b"", good[:20], good[:100], good[:-1], good + b"x", b"\x00" * 500):
        path.write_bytes(data)
        with pytest.raises(FormatError, match="talk: "):
            llm.load_session(path)
    assert llm.program.device.allocated_nbytes == nbytes
    path.write_bytes(good)
    assert llm.load_session(path).tokens == session.tokens


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokens": [1, 2]}, "size"),
        ({"tokens": "abc"}, "fields"),
        ({"tokens": [1.5]}, "fields"),
        ({"messages": ["text"]}, "fields"),
        ({"sizes": None}, "fields"),
        ({"sizes": [10**15, 10**15]}, "size"),
    ],
)
def test_a_header_that_lies_is_refused(
    llm: LanguageModel, session: Session, tmp_path: Path, change: dict[str, object], message: str
) -> None:
    path = tmp_path / "talk"
    session.save(path)
    good = path.read_bytes()
    magic, length, digest = PREFIX.unpack(good[: PREFIX.size])
    facts = json.loads(good[PREFIX.size :][:length])
    header = json.dumps(facts | change).encode()
    path.write_bytes(PREFIX.pack(magic, len(header), digest) + header + good[PREFIX.size + length :])
    with pytest.raises(FormatError, match=message):
        llm.load_session(path)


def test_a_missing_file_and_messages_that_are_not_json(
    llm: LanguageModel, session: Session, tmp_path: Path
) -> None:
    with pytest.raises(FileNotFoundError):
        llm.load_session(tmp_path / "none")
    session.messages = [{"role": "user", "content": object()}]
    with pytest.raises(InputError, match="messages cannot be saved"):
        session.save(tmp_path / "talk")
    assert list(tmp_path.iterdir()) == []
