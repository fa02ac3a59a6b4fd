"""Tiny models with random weights, one for each task and each way in which optimum-executorch exports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

VOCABULARY = 128
DECODER = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
ENCODER = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
}
LLAMA = {"task": "text-generation", "architecture": "LlamaForCausalLM", "config": "LlamaConfig"}


@dataclass(frozen=True)
class Model:
    """One file: what it is made of, and the options of its export."""

    task: str
    architecture: str
    config: str
    sizes: Mapping[str, Any] = field(default_factory=lambda: DECODER)
    options: Mapping[str, Any] = field(default_factory=dict)

    def save(self, folder: Path) -> None:
        """Write the model as a Hugging Face folder."""
        import torch
        import transformers

        torch.manual_seed(0)
        config = getattr(transformers, self.config)(**self.sizes)
        getattr(transformers, self.architecture)(config).eval().save_pretrained(folder)
        if self.config == "WhisperConfig":
            transformers.WhisperFeatureExtractor().save_pretrained(folder)


MODELS = {
    "llama": Model(**LLAMA),
    "llama with custom attention": Model(
        **LLAMA, options={"use_custom_sdpa": True, "use_custom_kv_cache": True, "max_seq_len": 64}
    ),
    "llama of 4 bits": Model(
        **LLAMA,
        options={
            "use_custom_sdpa": True,
            "use_custom_kv_cache": True,
            "max_seq_len": 64,
            "qlinear": "8da4w",
            "qlinear_group_size": 32,
            "qembedding": "8w",
            "qembedding_group_size": 0,
        },
    ),
    "qwen3": Model("text-generation", "Qwen3ForCausalLM", "Qwen3Config"),
    "gemma3": Model(
        "text-generation",
        "Gemma3ForCausalLM",
        "Gemma3TextConfig",
        {**DECODER, "sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"]},
        {"use_custom_sdpa": True, "use_custom_kv_cache": True, "max_seq_len": 64},
    ),
    "bert": Model(
        "fill-mask",
        "BertForMaskedLM",
        "BertConfig",
        {**ENCODER, "vocab_size": VOCABULARY, "max_position_embeddings": 64},
    ),
    "vit": Model(
        "image-classification",
        "ViTForImageClassification",
        "ViTConfig",
        {**ENCODER, "image_size": 32, "patch_size": 8, "num_labels": 10},
    ),
    "whisper": Model(
        "automatic-speech-recognition",
        "WhisperForConditionalGeneration",
        "WhisperConfig",
        {
            "vocab_size": VOCABULARY,
            "d_model": 64,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": 128,
            "decoder_ffn_dim": 128,
            "num_mel_bins": 80,
            "max_target_positions": 64,
            "decoder_start_token_id": 3,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "pad_token_id": 0,
        },
        {"max_seq_len": 64},
    ),
}
