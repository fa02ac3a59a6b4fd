"""Tiny random decoders of transformers: what Pteron's conversions of every family are compared with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from tests.llm import tiny_llama
from tests.zoo import libraries

CONTEXT = 64
SIZES = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": CONTEXT,
}
LLAMA_3_ROTATION = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 16,
}
LINEAR = {"rope_type": "linear", "rope_theta": 500.0, "factor": 2.0}

# A model type of transformers, and the entries of its config.
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama, tied": ("llama", {"tie_word_embeddings": True, "head_dim": 32}),
    "llama 3": ("llama", {"rope_parameters": LLAMA_3_ROTATION}),
    "llama, yarn": ("llama", {"rope_parameters": YARN}),
    "llama, linear": ("llama", {"rope_parameters": LINEAR, "attention_bias": True}),
    "mistral": ("mistral", {"head_dim": 16, "sliding_window": None}),
    "qwen2": ("qwen2", {"tie_word_embeddings": True}),
    "qwen3": ("qwen3", {"head_dim": 32}),
}


def model(name: str, dtype: torch.dtype = torch.float32) -> Any:
    """A model with random weights that a given dtype has. It computes in float32."""
    libraries.load()
    import transformers

    kind, entries = MODELS[name]
    torch.manual_seed(5)
    size = tokenizer().get_vocab_size(with_added_tokens=True)
    named = {
        **SIZES,
        "vocab_size": size,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": None,
        **entries,
    }
    config = transformers.AutoConfig.for_model(kind, **named)
    made = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    for parameter in made.parameters():  # biases begin as zeros and norms as ones, which hides mistakes
        parameter.data = 3 * parameter.data + 0.05 * torch.randn_like(parameter)
    return made.to(dtype).float().eval()


def tokenizer() -> Any:
    from tokenizers import Tokenizer

    return Tokenizer.from_str(tiny_llama.tokenizer_json())


def write_folder(folder: Path, model: Any, dtype: torch.dtype = torch.float32, **options: Any) -> Path:
    """As `save_pretrained` writes it, with a tokenizer."""
    model.to(dtype).save_pretrained(folder, **options)
    model.float()
    tokenizer().save(str(folder / "tokenizer.json"))
    (folder / "chat_template.jinja").write_text(tiny_llama.TEMPLATE)
    return folder


def logits(model: Any, tokens: list[int]) -> Any:
    """Of every position: [S, vocabulary]."""
    with torch.no_grad():
        return model(input_ids=torch.tensor([tokens])).logits[0].numpy()
