"""`pteron map` and `pteron embed` of tables: texts for a program or an embedder, images, and prompts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import torch
from torch.export import Dim

import pteron
from pteron.data import MapOptions, open_mapper
from pteron.engine.devices.opening import Device
from pteron.errors import InputError, RowError
from tests.llm import tiny_encoders
from tests.llm.tiny_encoders import TEXTS, VOCABULARY, expected, model, write_folder
from tests.programs.test_map import Pooled
from tests.support.cli import pteron_cli

TABLE = pa.table({"id": range(len(TEXTS)), "text": TEXTS})


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    pyarrow.parquet.write_table(TABLE, tmp_path / "in.parquet")
    return tmp_path / "in.parquet"


def test_embed_a_table(source: Path, tmp_path: Path, device: Device) -> None:
    bert = model("bert")
    folder, output = write_folder(tmp_path / "tiny", bert), tmp_path / "out.parquet"
    pteron_cli("embed", source, output, "--model", folder, "--part-rows", 4)
    made = pyarrow.parquet.read_table(output)
    assert made.column_names == ["id", "text", "embedding"]
    assert made["text"].to_pylist() == TEXTS
    np.testing.assert_allclose(made["embedding"].to_pylist(), expected(bert, TEXTS), rtol=1e-4, atol=2e-5)
    pteron_cli("embed", source, tmp_path / "out.npy", "--model", folder)
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), expected(bert, TEXTS), rtol=1e-4, atol=2e-5)
    assert "expected a table and an output" in pteron_cli("embed", "x", "--model", folder, code=2).stderr


def test_texts_for_a_program_with_a_mask(
    source: Path, tmp_path: Path, exported: Callable[..., bytes], device: Device
) -> None:
    """Rows of different lengths share a batch, and each has the result that torch gives it alone."""

    def arguments() -> tuple[Any, ...]:
        rows, length = Dim("rows", min=1, max=8), Dim("length", min=1, max=24)
        example = (torch.zeros(8, 24, dtype=torch.int64), torch.ones(8, 24, dtype=torch.int64))
        return Pooled(), example, ({0: rows, 1: length}, {0: rows, 1: length})

    assert len(VOCABULARY) <= Pooled().words.num_embeddings
    (tmp_path / "model.pte").write_bytes(exported("map_masked", arguments))
    tiny_encoders.tokenizer().save(str(tmp_path / "tokenizer.json"))
    options = ("--text-column", "text", "--on-error", "column", "--keep", "id")
    pteron_cli("map", tmp_path / "model.pte", source, tmp_path / "out.parquet", *options)
    made = pyarrow.parquet.read_table(tmp_path / "out.parquet").to_pydict()
    assert list(made) == ["id", "output0", "output1", "error"]
    for number, text in enumerate(TEXTS):
        tokens = tiny_encoders.tokenizer().encode(text).ids
        if len(tokens) > 24:
            assert made["error"][number] == (
                f"the text has {len(tokens)} tokens, but the program takes 24: cut it (truncate=True; "
                "pteron map --truncate)"
            )
            continue
        with torch.no_grad():
            mean, rows = Pooled()(torch.tensor([tokens]), torch.ones(1, len(tokens), dtype=torch.int64))
        np.testing.assert_allclose(made["output0"][number], mean[0], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(made["output1"][number], rows[0], rtol=1e-5, atol=1e-6)
    assert sum(error is not None for error in made["error"]) == 1


class Brightness(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean((2, 3))


def test_a_folder_of_images(tmp_path: Path, exported: Callable[..., bytes], device: Device) -> None:
    from PIL import Image

    def arguments() -> tuple[Any, ...]:
        return Brightness(), (torch.zeros(4, 3, 8, 6),), ({0: Dim("rows", min=1, max=4)},)

    (tmp_path / "model.pte").write_bytes(exported("map_images", arguments))
    folder = tmp_path / "images"
    (folder / "deeper").mkdir(parents=True)
    colours = [(255, 0, 51), (0, 102, 0), (20, 40, 60), (1, 2, 3), (7, 7, 7)]
    names = ["a.png", "b.PNG", "c.bmp", "deeper/d.png", "e.png"]
    for name, colour in zip(names, colours, strict=True):
        Image.new("RGB", (20, 10), colour).save(folder / name)
    (folder / "e.png").write_bytes(b"not an image")
    (folder / "notes.txt").write_text("not an image either")
    options = ("--mean", "0.5,0,0", "--std", "0.5,1,2", "--on-error", "column")
    pteron_cli("map", tmp_path / "model.pte", folder, tmp_path / "out.parquet", *options)
    made = pyarrow.parquet.read_table(tmp_path / "out.parquet").to_pydict()
    assert made["path"] == ["a.png", "b.PNG", "c.bmp", "deeper/d.png", "e.png"]
    wanted = (np.array(colours[:4]) / 255 - [0.5, 0, 0]) / [0.5, 1, 2]
    np.testing.assert_allclose(made["output0"][:4], wanted, rtol=1e-5, atol=1e-6)
    assert made["output0"][4] is None and "the image cannot be read" in made["error"][4]


def test_prompts(model_folder: Path, tmp_path: Path, llm: pteron.llm.LanguageModel) -> None:
    prompts = ["hello", "the cat", "a", "hello world"]
    pyarrow.parquet.write_table(pa.table({"prompt": prompts}), tmp_path / "in.parquet")
    path = next(model_folder.glob("*.pte"))
    for raw in (False, True):  # through the chat template, or as they are
        options = ("--prompt-column", "prompt", "-n", 5, *(["--raw"] if raw else []), "--overwrite")
        done = pteron_cli("map", path, tmp_path / "in.parquet", tmp_path / "out.jsonl", *options)
        assert "in.parquet: 0 of 4 rows" in done.stderr and "in.parquet: 4 of 4 rows" in done.stderr
        made = pa.json.read_json(tmp_path / "out.jsonl").to_pydict()
        asked: list[Any] = prompts if raw else [[{"role": "user", "content": text}] for text in prompts]
        alone = [llm.generate(prompt, max_new_tokens=5, temperature=0) for prompt in asked]
        assert made["answer"] == [answer.text for answer in alone]
        assert made["finish_reason"] == [answer.finish_reason for answer in alone]


def test_a_prompt_that_is_too_long_is_a_bad_row(model_folder: Path, llm: pteron.llm.LanguageModel) -> None:
    mapper = open_mapper(
        next(model_folder.glob("*.pte")), MapOptions(prompt="p", raw=True, generation={"max_new_tokens": 2})
    )
    try:
        rows = [{"p": "hello"}, {"p": "x" * 100_000}, {"q": ""}, {"p": "a"}, {"p": None}, {"p": 7}]
        rows += [{"p": ""}, {"p": [{"no": "role"}]}, {"p": "hello"}]
        made = list(mapper.map(iter(rows)))
    finally:
        mapper.close()
    bad = [number for number, result in enumerate(made) if isinstance(result, RowError)]
    assert bad == [1, 2, 4, 5, 6, 7] and made[8] == made[0]
    assert str(made[6]) == "row 6: the prompt is empty: the model needs at least one token"
    assert str(made[7]).startswith("row 7: the chat template of")
    assert "the prompt has more tokens" in str(made[1])
    assert str(made[2]) == "row 2: there is no column 'p'; the columns are q"
    assert str(made[4]) == "row 4: column 'p': expected a text or messages, but the value is missing"
    assert str(made[5]) == "row 5: column 'p': expected a text or messages, got 7 (int)"


def test_a_source_needs_a_column(tmp_path: Path, device: Device) -> None:
    folder = write_folder(tmp_path / "tiny", model("bert"))
    with pytest.raises(InputError, match="say which column has the texts"):
        open_mapper(folder, MapOptions())
