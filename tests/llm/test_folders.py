"""Hugging Face folders: dtypes, several files, older configs, and what is refused.

That each family has the logits of transformers is checked in test_families.py.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

import pteron
import pteron.llm
from pteron.cli.commands import app
from pteron.engine.devices.opening import Device
from pteron.errors import FormatError, InputError, PteronError, UnsupportedError
from pteron.llm.gguf import conversion_cache
from pteron.llm.gguf.affine_rounding import round_affine
from pteron.llm.gguf.codes import code
from pteron.llm.gguf.numpy_operators import reference
from pteron.llm.sources import open_decoder
from tests.llm.gguf_families import FAMILIES, Family, logits, model
from tests.llm.tiny_decoders import change, write_folder
from tests.llm.tiny_models import delegate_of

PROMPT = [5, 77, 130, 9, 2, 41, 200, 11, 90, 63, 7, 150, 33, 8, 61, 240, 17, 3, 99, 12]
LLAMA = FAMILIES["llama"]


def computed(folder: Path) -> Any:
    """The logits of a folder by numpy, which the GPU's are compared with in test_families.py."""
    checkpoint = open_decoder(folder)
    return reference(checkpoint.config, checkpoint.tensors, PROMPT).logits()


def assert_close(got: Any, wanted: Any, tolerance: float = 2e-4) -> None:
    np.testing.assert_allclose(got, wanted, rtol=0, atol=tolerance * (wanted.max() - wanted.min()))


class TestWeights:
    @pytest.mark.parametrize(("dtype", "kind"), [(torch.bfloat16, "BF16"), (torch.float16, "F16")])
    def test_sixteen_bits(self, dtype: torch.dtype, kind: str, tmp_path: Path, device: Device) -> None:
        original = model(LLAMA)
        folder = write_folder(tmp_path / "tiny", original, dtype)
        made = pteron.llm.convert(folder, tmp_path / "tiny.pte", max_seq_len=20)
        assert made.quantization == f"as in the file: {kind}"
        wanted = logits(original, PROMPT)
        with pteron.load(made.path, device=device, tune=False) as program:
            method = program.method()
            assert_close(method(np.array([PROMPT[:17]]), np.array([0]))[0], wanted[16])
            assert_close(method(np.array([PROMPT[17:18]]), np.array([17]))[0], wanted[17])

    def test_bfloat16_is_stored_bit_by_bit(self, tmp_path: Path) -> None:
        """Even the smallest numbers, which float16 would round."""
        original = model(LLAMA)
        original.model.layers[0].mlp.up_proj.weight.data[0, :4] = torch.tensor([1e-30, -3e-9, 3e38, 0.0])
        folder = write_folder(tmp_path / "tiny", original, torch.bfloat16)
        pteron.llm.convert(folder, tmp_path / "tiny.pte")
        file, delegate = delegate_of(tmp_path / "tiny.pte")
        constants = delegate.graph.constants
        stored = {bytes(file.named_data(c.named_key)) for c in constants if c.named_key}
        for name, tensor in load_file(folder / "model.safetensors").items():
            if tensor.dim() == 2:
                assert tensor.view(torch.uint16).numpy().tobytes() in stored, name

    def test_several_files(self, tmp_path: Path) -> None:
        original = model(LLAMA)
        folder = write_folder(tmp_path / "tiny", original, max_shard_size="50KB")
        assert len(list(folder.glob("*.safetensors"))) > 2
        assert_close(computed(folder), logits(original, PROMPT))

    @pytest.mark.parametrize(("quantize", "bits", "most"), [("8bit", 8, 0.005), ("4bit", 4, 0.08)])
    def test_quantised_on_the_way(
        self, quantize: Any, bits: int, most: float, tmp_path: Path, device: Device
    ) -> None:
        """The logits are those of torch with the rounded weights."""
        original = model(LLAMA)
        folder = write_folder(tmp_path / "tiny", original, torch.bfloat16)
        made = pteron.llm.convert(folder, tmp_path / "tiny.pte", quantize=quantize)
        assert most / 10 < made.rounding < most
        for name, parameter in original.named_parameters():
            if parameter.dim() == 2:
                is_edge = "embed" in name or "lm_head" in name
                codes = code(round_affine(parameter.data.numpy(), 8 if is_edge else bits, 32))
                parameter.data = torch.tensor(codes.dequantize())
        with pteron.load(made.path, device=device, tune=False) as program:
            got = program.method()(np.array([PROMPT]), np.array([0]))[0]
        assert_close(got, logits(original, PROMPT)[-1])

    def test_options_of_quantisation(self, tmp_path: Path) -> None:
        options: Any = {"quantize": "2bit"}
        with pytest.raises(InputError, match="quantize must be one of 8bit, 4bit, not '2bit'"):
            pteron.llm.convert(tmp_path, tmp_path / "x.pte", **options)

    def test_rounding_beats_the_whole_range(self) -> None:
        values = np.random.default_rng(0).standard_normal((64, 256)).astype(np.float32)
        groups = values.reshape(-1, 32)
        low, high = groups.min(1, keepdims=True), groups.max(1, keepdims=True)
        step = (high - low) / 15
        plain = (np.rint((groups - low) / step) * step + low).reshape(values.shape)
        rounded = code(round_affine(values, 4, 32)).dequantize()
        assert np.linalg.norm(rounded - values) < 0.95 * np.linalg.norm(plain - values)
        constant = np.full((1, 32), 0.1, np.float32)
        np.testing.assert_allclose(code(round_affine(constant, 4, 32)).dequantize(), constant, rtol=1e-3)

    def test_a_head_that_is_stored_although_it_is_tied(self, tmp_path: Path) -> None:
        original = model(Family("llama", "llama", {"tie_word_embeddings": True}))
        folder = write_folder(tmp_path / "tiny", original)
        stored = load_file(folder / "model.safetensors")
        save_file({**stored, "lm_head.weight": torch.zeros(4, 4)}, folder / "model.safetensors")
        assert_close(computed(folder), logits(original, PROMPT))


OLDER: dict[str, tuple[str, dict[str, Any]]] = {
    "llama 3": (
        "llama 3",
        {
            "rope_theta": 10000.0,
            "rope_scaling": {
                "type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 16,
            },
        },
    ),
    "qwen2": ("qwen2", {"rope_theta": 10000.0, "sliding_window": 8, "use_sliding_window": False}),
    "gemma2": ("gemma2", {"rope_theta": 10000.0}),
    "gemma3": (
        "gemma3",
        {
            "rope_theta": 1e6,
            "rope_local_base_freq": 10000.0,
            "rope_scaling": {"rope_type": "linear", "factor": 8.0},
            "sliding_window_pattern": 6,
        },
    ),
    "smollm3": ("smollm3", {"no_rope_layers": None}),
    "starcoder2": ("starcoder2", {"rope_theta": 10000.0}),
    "stablelm": ("stablelm", {"rope_theta": 10000.0, "partial_rotary_factor": 0.5}),
}


@pytest.mark.parametrize("case", OLDER)
def test_entries_of_older_files(case: str, tmp_path: Path) -> None:
    """Rotation and windows were stated in other ways before 2025."""
    family, entries = OLDER[case]
    folder = write_folder(tmp_path / "tiny", model(FAMILIES[family]))
    newer = open_decoder(folder).config
    if "rope_theta" in entries:
        entries = {"rope_parameters": None, **entries}
    change(folder, "config.json", layer_types=None, **entries)
    assert open_decoder(folder).config == newer


def test_the_text_model_of_one_that_sees(tmp_path: Path) -> None:
    """Gemma 3 has its text model's entries in text_config, and tensors for images, which are not used."""
    original = model(FAMILIES["gemma3"])
    folder = write_folder(tmp_path / "tiny", original)
    wanted = computed(folder)
    text = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({"model_type": "gemma3", "text_config": text}))
    stored = load_file(folder / "model.safetensors")
    renamed = {f"language_model.{name}": tensor for name, tensor in stored.items()}
    save_file({**renamed, "vision_tower.x.weight": torch.zeros(2)}, folder / "model.safetensors")
    np.testing.assert_array_equal(computed(folder), wanted)


def test_internlm2_has_queries_keys_and_values_in_groups(tmp_path: Path) -> None:
    original = model(LLAMA)
    folder = write_folder(tmp_path / "tiny", original)
    change(folder, "config.json", model_type="internlm2")
    theirs = {"input_layernorm": "attention_norm", "post_attention_layernorm": "ffn_norm"}
    theirs |= {"self_attn.o_proj": "attention.wo", "mlp.gate_proj": "feed_forward.w1"}
    theirs |= {"mlp.up_proj": "feed_forward.w3", "mlp.down_proj": "feed_forward.w2"}
    theirs |= {"lm_head": "output", "embed_tokens": "tok_embeddings"}
    made = {}
    for name, tensor in load_file(folder / "model.safetensors").items():
        for ours, renamed in theirs.items():
            name = name.replace(ours, renamed)
        made[name] = tensor
    for number in range(LLAMA.layers):
        parts = [made.pop(f"model.layers.{number}.self_attn.{part}_proj.weight") for part in "qkv"]
        groups = [part.reshape(2, -1, 16, 64) for part in parts]  # of one head of keys each
        made[f"model.layers.{number}.attention.wqkv.weight"] = torch.cat(groups, 1).reshape(-1, 64)
    save_file(made, folder / "model.safetensors")
    assert_close(computed(folder), logits(original, PROMPT))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_folder(tmp_path_factory.mktemp("folder") / "tiny", model(LLAMA))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [7, 9]}))
    return folder


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.mark.usefixtures("cache")
class TestUse:
    def test_a_folder_is_a_language_model(self, folder: Path, device: Device) -> None:
        with pteron.llm.load(folder, device=device, context_length=32) as llm:
            ends = {llm.tokenizer.id_of("<|end|>"), llm.tokenizer.id_of("<|im_end|>"), 7, 9, 2}
            assert llm.decoder.eos_ids <= ends and {7, 9, 2} <= llm.decoder.eos_ids
            assert llm.chat_prompt([{"role": "user", "content": "hi"}]).startswith("<|im_start|>user\nhi")
            assert 1 <= len(llm.generate("hello", max_new_tokens=3, temperature=0).tokens) <= 3

    def test_it_is_converted_once_until_it_changes(self, folder: Path) -> None:
        first = conversion_cache.converted(folder)
        assert first.name.startswith("tiny-") and conversion_cache.converted(folder) == first
        (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [7]}))
        assert conversion_cache.converted(folder) != first
        (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [7, 9]}))
        assert conversion_cache.converted(folder) == first

    def test_commands(self, folder: Path, tmp_path: Path) -> None:
        made = CliRunner().invoke(app, ["generate", str(folder), "-p", "hello", "-n", "2", "-q"])
        assert made.exit_code == 0, made.output
        (tmp_path / "text").write_text("hello world, the hello world")
        options = ["--text", str(tmp_path / "text"), "--json"]
        compared = CliRunner().invoke(app, ["compare", str(made_file()), str(folder), *options])
        assert compared.exit_code == 0, compared.output
        assert json.loads(compared.stdout)["divergence"] < 1e-6


def made_file() -> Path:
    (entry,) = conversion_cache.entries()
    return entry.path


def rewrite(folder: Path, change: Callable[[dict[str, torch.Tensor]], Any]) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


UP = "model.layers.0.mlp.up_proj.weight"
REFUSED: dict[str, tuple[Callable[[Path], Any], type[PteronError], str]] = {
    "no config": (lambda f: (f / "config.json").unlink(), InputError, "has a config.json; this one has none"),
    "no tokenizer": (
        lambda f: (f / "tokenizer.json").unlink(),
        InputError,
        "tokenizer.json is missing. Older",
    ),
    "a bad tokenizer": (
        lambda f: (f / "tokenizer.json").write_text("{}"),
        FormatError,
        "the tokenizer cannot be read",
    ),
    "no head": (
        lambda f: rewrite(f, lambda t: t.pop("lm_head.weight")),
        FormatError,
        "the output head is not tied to the embedding, but lm_head is missing",
    ),
    "a missing tensor": (
        lambda f: rewrite(f, lambda t: t.pop(UP)),
        FormatError,
        "'blk.0.ffn_up.weight' is mis",
    ),
    "a surplus tensor": (
        lambda f: rewrite(f, lambda t: t.update(x=torch.zeros(3))),
        UnsupportedError,
        "1 tensors have no known place: x",
    ),
    "integers": (
        lambda f: rewrite(f, lambda t: t.update({UP: t[UP].to(torch.int8)})),
        UnsupportedError,
        f"tensor '{UP}' has the dtype I8; these are supported: F32, F16, BF16",
    ),
    "infinity": (
        lambda f: rewrite(f, lambda t: t[UP].fill_(torch.inf)),
        FormatError,
        f"tensor '{UP}' has values that are not finite",
    ),
    "a text for a size": (
        lambda f: change(f, "config.json", hidden_size="64"),
        FormatError,
        "'hidden_size' should be int, not str",
    ),
    "no size": (
        lambda f: change(f, "config.json", hidden_size=None),
        FormatError,
        "'hidden_size' is missing",
    ),
    "an activation": (
        lambda f: change(f, "config.json", hidden_act="relu"),
        UnsupportedError,
        "the activation 'relu' is not supported for llama, which has 'silu'",
    ),
    "a rotation": (
        lambda f: change(f, "config.json", rope_parameters={"rope_type": "proportional"}),
        UnsupportedError,
        "the rotary scaling 'proportional' is not supported; these are: default, linear",
    ),
    "a rotation by no number": (
        lambda f: change(f, "config.json", rope_parameters={"rope_type": "linear", "factor": 0.0}),
        FormatError,
        "these numbers give no rotation",
    ),
    "no turns": (
        lambda f: change(
            f, "config.json", rope_parameters={"rope_type": "yarn", "factor": 2, "beta_slow": 0}
        ),
        FormatError,
        "these numbers give no rotation",
    ),
    "more layers than tensors": (
        lambda f: change(f, "config.json", num_hidden_layers=2**31 - 1),
        FormatError,
        "2147483647 layers with heads of 16 elements do not fit 21 tensors",
    ),
    "a huge head": (
        lambda f: change(f, "config.json", head_dim=2**30),
        FormatError,
        "2 layers with heads of 1073741824 elements do not fit",
    ),
    "an integer that no machine has": (
        lambda f: change(f, "config.json", hidden_size=2**70),
        FormatError,
        "'hidden_size' should be at most 2147483647",
    ),
    "layer types": (
        lambda f: change(f, "config.json", layer_types=["full_attention"]),
        FormatError,
        "'layer_types' should have 2 of full_attention, sliding_attention",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_folders_that_are_refused(case: str, folder: Path, tmp_path: Path) -> None:
    edit, error, message = REFUSED[case]
    edit(shutil.copytree(folder, tmp_path / "tiny"))
    with pytest.raises(error, match=message):
        pteron.llm.convert(tmp_path / "tiny", tmp_path / "x.pte")
    assert not (tmp_path / "x.pte").exists()
