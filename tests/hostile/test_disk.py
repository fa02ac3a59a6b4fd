"""Where files cannot be written, or what lies there is damaged: one line, and nothing is lost."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

import pteron
from pteron.cli.commands import app
from pteron.engine.measured import tuning
from pteron.engine.measured.device_cache import identity
from pteron.errors import InputError
from tests.hostile import seeds

ADAPTER: Any = SimpleNamespace(name="some GPU", backend="Vulkan", driver="1")
BEST = {"some node": {64: "some route"}}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(seeds.language_model())
    return path


class TestConvert:
    def test_a_file_is_not_converted_into_itself(self, model: Path) -> None:
        with pytest.raises(InputError, match="is an input: choose another output"):
            pteron.convert(model, model)
        assert model.read_bytes() == seeds.language_model()

    @pytest.mark.parametrize("kind", ["symlink_to", "hardlink_to"])
    def test_nor_under_another_name(self, kind: str, model: Path) -> None:
        link = model.with_name("link.pte")
        getattr(link, kind)(model)
        result = CliRunner().invoke(app, ["convert", str(model), str(link)])
        assert result.exit_code == 1 and "is another name of" in result.output
        assert model.read_bytes() == seeds.language_model()

    def test_nor_into_a_file_of_its_folder(self, tmp_path: Path) -> None:
        folder = tmp_path / "folder"
        folder.mkdir()
        weights = folder / "model.safetensors"
        weights.write_bytes(b"the only copy")
        for output in (weights, folder):
            with pytest.raises(InputError, match="choose another output"):
                pteron.convert(folder, output)
        assert weights.read_bytes() == b"the only copy"

    def test_a_site_does_not_replace_the_files_of_its_model(self, model: Path) -> None:
        result = CliRunner().invoke(app, ["web", str(model), str(model.parent)])
        assert result.exit_code == 1 and "holds" in result.output
        assert [path.name for path in model.parent.iterdir()] == [model.name]

    def test_a_full_disk(self, model: Path) -> None:
        """A limit of the size of files fails where a full disk does: in the middle of writing."""
        target = model.with_name("model.pte")
        target.write_bytes(b"what was there before")
        command = [sys.executable, "-m", "pteron", "convert", str(model), str(target)]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000)),
        )
        assert done.returncode == 1
        assert done.stderr.strip().splitlines()[-1].endswith("model.pte: File too large")
        assert "Traceback" not in done.stderr
        assert target.read_bytes() == b"what was there before"
        assert sorted(path.name for path in model.parent.iterdir()) == ["model.gguf", "model.pte"]


def test_a_cache_folder_that_cannot_be_written(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = model.with_name("cache")
    folder.write_text("a file where the folder should be")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    result = CliRunner().invoke(app, ["generate", str(model), "--prompt", "hello"])
    assert result.exit_code == 1
    assert result.output.strip() == f"error: {folder}/pteron/models: Not a directory"


class TestTuning:
    @pytest.fixture(autouse=True)
    def cache(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        (tmp_path / "pteron").mkdir()
        return tmp_path / "pteron" / "tuning.json"

    @pytest.mark.parametrize(
        "text",
        ["", "[", "[" * 100_000, '{"a":' * 100_000, "[1]", "null", "\0", '{"x": ' + "1" * 10_000 + "}"],
        ids=["empty", "cut", "nested lists", "nested objects", "a list", "null", "zero", "a long number"],
    )
    def test_a_damaged_file_is_ignored(self, cache: Path, text: str) -> None:
        cache.write_text(text)
        assert tuning.read(ADAPTER) is None
        tuning.write(ADAPTER, BEST)
        found = tuning.read(ADAPTER)
        assert found is not None and found.best == BEST

    @pytest.mark.parametrize("entry", ["1", "[]", '"x"', '{"some node": 3}', '{"some node": {"x": 1}}'])
    def test_a_damaged_entry_is_ignored(self, cache: Path, entry: str) -> None:
        cache.write_text(f'{{"{identity(ADAPTER)}": {entry}}}')
        assert tuning.read(ADAPTER) is None
        tuning.write(ADAPTER, BEST)
        found = tuning.read(ADAPTER)
        assert found is not None and found.best == BEST

    def test_a_folder_that_cannot_be_written_is_named(self, cache: Path, monkeypatch: Any) -> None:
        cache.parent.rmdir()
        cache.parent.write_text("a file where the folder should be")
        with pytest.raises(OSError, match="pteron"):
            tuning.write(ADAPTER, BEST)
        assert tuning.read(ADAPTER) is None

    def test_unreadable_bytes(self, cache: Path) -> None:
        cache.write_bytes(os.urandom(64) + b"\xff")
        assert tuning.read(ADAPTER) is None
