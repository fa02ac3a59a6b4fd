"""A GGUF file is converted once, and found again by its contents."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import pteron.llm
from pteron.cli.commands import app
from pteron.engine.devices.opening import Device
from pteron.errors import InputError, PteronError
from pteron.llm.context_choice import ContextFacts, chosen_context
from pteron.llm.gguf import conversion_cache as cache
from tests.llm.tiny_models import LLAMA, weights, write_gguf


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_gguf(tmp_path / "tiny.gguf", LLAMA)


def names() -> list[str]:
    return [entry.path.name for entry in cache.entries()]


def test_converted_once(source: Path, tmp_path: Path) -> None:
    shares: list[float] = []

    def converted(path: Path, **options: Any) -> Path:
        return cache.converted(path, progress=lambda what, share, total: shares.append(share), **options)

    first = converted(source)
    assert shares[-1] == 1
    shares.clear()
    assert converted(source) == first
    (tmp_path / "elsewhere").mkdir()
    copy = shutil.copy(source, tmp_path / "elsewhere" / "tiny.gguf")
    assert converted(copy) == first  # by its contents, not by where it lies
    assert {converted(source, max_context=context) for context in (16, 32, 64, 100_000)} == {first}
    assert not shares
    assert len(names()) == 1


LONG = replace(LLAMA, context=5000)


def test_one_program_has_every_context(tmp_path: Path, device: Device) -> None:
    """As one that was converted for this context alone, also if its KV caches are longer than the file's."""
    source = write_gguf(tmp_path / "tiny.gguf", LONG)
    tokens = np.random.default_rng(5).integers(3, 250, 3100).tolist()
    alone = tmp_path / "alone.pte"
    for context, length, wanted in ((None, 3100, 5000), (3000, 2999, 3000), (200, 190, 200), (50, 50, 50)):
        pteron.llm.convert(source, alone, max_context=wanted)
        with (
            pteron.llm.load(alone, device=device) as separate,
            pteron.llm.load(source, device=device, context_length=context) as shared,
        ):
            assert (shared.context_length, separate.context_length) == (wanted, wanted)
            if wanted > 128:  # the tokens of a call
                assert shared.decoder.kv_nbytes == separate.decoder.kv_nbytes
            made, expected = (
                llm.generate(tokens[:length], max_new_tokens=1, logprobs=True) for llm in (shared, separate)
            )
            assert made.tokens == expected.tokens
            assert made.logprobs[0].logprob == pytest.approx(expected.logprobs[0].logprob, abs=1e-5)
    assert len(names()) == 1
    with pytest.raises(
        InputError, match="context_length is 5001: this model has contexts of 1 to 5000 tokens"
    ):
        pteron.llm.load(source, device=device, context_length=5001)


def test_the_tokens_of_a_call(tmp_path: Path, device: Device) -> None:
    """`ubatch` bounds the memory of a call, and more than usual need another program."""
    source = write_gguf(tmp_path / "tiny.gguf", LONG)
    answers = set()
    for given, most in ((None, 128 if device.is_software else 512), (7, 7), (600, 600)):
        with pteron.llm.load(source, device=device, ubatch=given, context_length=700) as llm:
            assert llm.max_length == most
            assert llm.decoder.method.inputs[0].max_shape == (1, given or 512)
            answer = llm.generate("Once upon a time there was a", max_new_tokens=4, temperature=0)
            answers.add(answer.text)
    assert len(answers) == 1
    assert len(names()) == 2
    program = cache.converted(source)
    with pytest.raises(InputError, match="ubatch is 513: this program takes at most 512 tokens"):
        pteron.llm.load(program, device=device, ubatch=513)


def test_a_longer_context_than_programs_share(
    tmp_path: Path, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "LONGEST_SHARED", 2048)
    source = write_gguf(tmp_path / "tiny.gguf", LONG)
    for context, wanted in ((None, 2048), (2049, 2049), (4000, 4000), (5000, 5000)):
        with pteron.llm.load(source, device=device, context_length=context) as llm:
            assert llm.context_length == wanted
    assert len(names()) == 3  # for 2048, 4096 and 5000 tokens


def test_a_saved_conversation_has_no_context(tmp_path: Path, device: Device) -> None:
    source = write_gguf(tmp_path / "tiny.gguf", LONG)
    with pteron.llm.load(source, device=device, context_length=200) as llm:
        session = llm.session()
        session.generate("hello world", max_new_tokens=5, eos_token_id=[])
        session.save(tmp_path / "talk")
        tokens = list(session.tokens)
    answers = set()
    for context in (150, 300, None):
        with pteron.llm.load(source, device=device, context_length=context) as llm:
            session = llm.load_session(tmp_path / "talk")
            answer = session.generate([*tokens, 7, 8, 9], max_new_tokens=5, eos_token_id=[])
            assert answer.stats.cached_tokens == len(tokens)
            answers.add(tuple(answer.tokens))
    assert len(answers) == 1


@pytest.mark.parametrize(
    ("options", "context"),
    [
        (("f16", 1, None), 8000),  # the model's
        (("f16", 1, 4_000_000), 4000),
        (("f32", 2, 4_000_000), 2048),  # never less than in the file
        (("f16", 1, 10**9), 8000),
        (("f16", 1000, None), 2048),
    ],
)
def test_the_default_context_is_what_memory_allows(options: Any, context: int) -> None:
    facts = ContextFacts(2048, 8000, 9000, 128, kv_elements_per_token=500)
    assert chosen_context(facts, None, *options) == context
    assert chosen_context(facts, 77, *options) == 77
    assert chosen_context(ContextFacts(), None, *options) is None


def test_changed_contents_are_converted_again(source: Path) -> None:
    first = cache.converted(source)
    changed = weights(LLAMA)
    changed["output_norm.weight"] = changed["output_norm.weight"] * 2
    write_gguf(source, LLAMA, changed)
    os.utime(source, ns=(1, 1))
    assert cache.converted(source) != first


def test_a_failed_conversion_leaves_nothing(tmp_path: Path) -> None:
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(b"GGUF and no more")
    with pytest.raises(PteronError):
        cache.converted(bad)
    assert names() == []


def test_the_least_recently_used_models_are_removed(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def another(number: int) -> Path:
        changed = weights(LLAMA)
        changed["output_norm.weight"] = changed["output_norm.weight"] * number
        return write_gguf(source.with_name(f"tiny-{number}.gguf"), LLAMA, changed)

    made = [cache.converted(another(number)) for number in (2, 3)]
    for age, path in enumerate(reversed(made)):
        os.utime(path, (1000 - age, 1000 - age))
    nbytes = max(path.stat().st_size for path in made)
    monkeypatch.setenv(cache.LIMIT_VARIABLE, str(2.5 * nbytes / 2**30))
    newest = cache.converted(another(4))
    assert names() == [newest.name, made[1].name]
    monkeypatch.setenv(cache.LIMIT_VARIABLE, "0")
    assert cache.converted(another(5)).exists()  # what is asked for is kept in any case
    assert len(names()) == 1
    monkeypatch.setenv(cache.LIMIT_VARIABLE, "much")
    with pytest.raises(InputError, match="PTERON_CACHE_GIB must be a number of GiB, not 'much'"):
        cache.limit()


def test_a_damaged_file_of_digests_is_ignored(source: Path) -> None:
    first = cache.converted(source)
    (cache.folder() / "digests.json").write_text("{]")
    assert cache.converted(source) == first


def test_a_gguf_file_is_a_model(source: Path, device: Device) -> None:
    with pteron.llm.load(source, device=device, context_length=32) as model:
        assert model.context_length == 32
        assert 1 <= len(model.generate("hello", max_new_tokens=3, temperature=0).tokens) <= 3
    assert len(names()) == 1


def test_commands(source: Path, tmp_path: Path) -> None:
    def run(*arguments: str) -> Any:
        return CliRunner().invoke(app, list(arguments))

    made = run("generate", str(source), "-p", "hello", "-n", "2", "--temp", "0", "-q")
    assert made.exit_code == 0, made.output
    listed = run("cache", "list")
    assert "tiny-" in listed.output and "1 model," in listed.output
    assert "freed" in run("cache", "clear").output
    assert names() == []
    refused = run("run", str(source))
    assert refused.exit_code == 1
    assert "pteron chat" in refused.output.replace("\n", " ")
