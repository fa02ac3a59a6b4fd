"""A GGUF file is converted once, and found again by its contents."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import pteron.llm
from pteron.cli.commands import app
from pteron.devices import Device
from pteron.errors import InputError, PteronError
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
        return cache.converted(path, progress=lambda share, what: shares.append(share), **options)

    first = converted(source)
    assert shares[-1] == 1
    shares.clear()
    assert converted(source) == first
    (tmp_path / "elsewhere").mkdir()
    copy = shutil.copy(source, tmp_path / "elsewhere" / "tiny.gguf")
    assert converted(copy) == first  # by its contents, not by where it lies
    assert not shares
    assert converted(source, max_context=32) != first
    assert shares
    assert len(names()) == 2


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
    made = [cache.converted(source, max_context=size) for size in (16, 24)]
    for age, path in enumerate(reversed(made)):
        os.utime(path, (1000 - age, 1000 - age))
    nbytes = max(path.stat().st_size for path in made)
    monkeypatch.setenv(cache.LIMIT_VARIABLE, str(2.5 * nbytes / 2**30))
    newest = cache.converted(source, max_context=32)
    assert names() == [newest.name, made[1].name]
    monkeypatch.setenv(cache.LIMIT_VARIABLE, "0")
    assert cache.converted(source, max_context=40).exists()  # what is asked for is kept in any case
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
