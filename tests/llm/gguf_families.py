"""Tiny random models of every family: of transformers, and the same as GGUF files.

Names come from the package `gguf`. What llama.cpp's converter does to tensors and facts is done here again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import log, sqrt
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch

from tests.llm.tiny_models import SPECIAL, TEMPLATE, TOKENS
from tests.zoo import libraries

CONTEXT = 48
WIDTH, HIDDEN, HEADS, KV_HEADS = 64, 96, 4, 2


@dataclass(frozen=True)
class Family:
    """A family: how transformers makes a model of it, and what its GGUF files say."""

    model_type: str
    architecture: str  # of GGUF
    options: dict[str, Any] = field(default_factory=dict)  # of the config of transformers
    facts: dict[str, Any] = field(default_factory=dict)  # of GGUF, without the architecture's name
    norm_offset: float = 0.0  # that transformers adds to the weights of norms
    permuted: bool = False  # the rows of q and k are stored for the rotation of pairs
    layers: int = 2
    tensors: dict[str, Any] = field(default_factory=dict)  # more of them
    context: int = CONTEXT  # that it is converted for


LLAMA_3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}


def llama_3_divisors(size: int) -> Any:
    """What llama.cpp's converter makes of LLAMA_3."""
    frequencies = 10000.0 ** -(np.arange(0, size, 2) / size)
    length = 2 * np.pi / frequencies
    smooth = np.clip((16 / length - 1) / (4 - 1), 0, 1)
    return (1 / ((1 - smooth) / 8 + smooth)).astype(np.float32)


SHORT, LONG = np.linspace(1, 1.5, 8, dtype=np.float32), np.linspace(1, 6, 8, dtype=np.float32)
LONG_ROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "original_max_position_embeddings": 24,
    "short_factor": SHORT.tolist(),
    "long_factor": LONG.tolist(),
}
LONG_FACTS = {
    "rope.scaling.original_context_length": 24,
    "rope.scaling.attn_factor": sqrt(1 + log(CONTEXT / 24) / log(24)),
}
LONG_TENSORS = {"rope_factors_long.weight": LONG, "rope_factors_short.weight": SHORT}

FAMILIES = {
    "llama": Family("llama", "llama", permuted=True),
    "llama 3": Family(
        "llama",
        "llama",
        {"rope_parameters": LLAMA_3, "tie_word_embeddings": True},
        permuted=True,
        tensors={"rope_freqs.weight": llama_3_divisors(16)},
    ),
    "llama, yarn": Family(
        "llama",
        "llama",
        {
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 10000.0,
                "factor": 4.0,
                "original_max_position_embeddings": 16,
            }
        },
        {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 16},
        permuted=True,
    ),
    "mistral": Family("mistral", "llama", {"head_dim": 32, "sliding_window": None}, permuted=True),
    "falcon3": Family("llama", "llama", {"head_dim": 32, "rope_theta": 1000042.0}, permuted=True),
    "internlm2": Family("llama", "internlm2", permuted=True),
    "qwen2": Family("qwen2", "qwen2", {"tie_word_embeddings": True}),
    "qwen3": Family("qwen3", "qwen3", {"head_dim": 32}),
    "gemma": Family("gemma", "gemma", {"head_dim": 32}, norm_offset=1.0),
    "gemma2": Family(
        "gemma2",
        "gemma2",
        {
            "head_dim": 16,
            "query_pre_attn_scalar": 16,
            "sliding_window": 10,
            "attn_logit_softcapping": 2.0,
            "final_logit_softcapping": 3.0,
        },
        {"attention.sliding_window": 10, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0},
        norm_offset=1.0,
    ),
    "gemma3": Family(
        "gemma3_text",
        "gemma3",
        {
            "head_dim": 32,
            "query_pre_attn_scalar": 32,
            "sliding_window": 10,
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
            },
        },
        {
            "attention.sliding_window": 10,
            "rope.freq_base": 1e6,
            "rope.scaling.type": "linear",
            "rope.scaling.factor": 8.0,
        },
        norm_offset=1.0,
        layers=6,
    ),
    "phi3": Family("phi3", "phi3", {"sliding_window": 10}, {"attention.sliding_window": 10}),
    "phi3, long context": Family(
        "phi3",
        "phi3",
        {"rope_parameters": LONG_ROPE, "original_max_position_embeddings": 24, "sliding_window": None},
        {**LONG_FACTS, "attention.sliding_window": 0},
        tensors=LONG_TENSORS,
    ),
    "phi3, short context": Family(
        "phi3",
        "phi3",
        {"rope_parameters": LONG_ROPE, "original_max_position_embeddings": 24, "sliding_window": None},
        {**LONG_FACTS, "attention.sliding_window": 0},
        tensors=LONG_TENSORS,
        context=24,
    ),
    "olmo2": Family("olmo2", "olmo2"),
    "granite": Family(
        "granite",
        "granite",
        {
            "embedding_multiplier": 12.0,
            "attention_multiplier": 0.1,
            "residual_multiplier": 0.22,
            "logits_scaling": 8.0,
        },
        {"embedding_scale": 12.0, "attention.scale": 0.1, "residual_scale": 0.22, "logit_scale": 8.0},
        permuted=True,
    ),
    "smollm3": Family("smollm3", "smollm3", {"tie_word_embeddings": True}, permuted=True, layers=4),
    "starcoder2": Family(
        "starcoder2", "starcoder2", {"sliding_window": 10}, {"attention.sliding_window": 10}
    ),
    "stablelm": Family(
        "stablelm",
        "stablelm",
        {"partial_rotary_factor": 0.5, "use_qkv_bias": True},
        {"rope.dimension_count": 8},
    ),
    "stablelm, parallel": Family(
        "stablelm",
        "stablelm",
        {"partial_rotary_factor": 0.25, "use_parallel_residual": True},
        {"rope.dimension_count": 4},
    ),
    "gpt2": Family("gpt2", "gpt2"),
    "mixtral": Family(
        "mixtral",
        "llama",
        {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": None},
        {"expert_count": 4, "expert_used_count": 2},
        permuted=True,
    ),
    "qwen2moe": Family(
        "qwen2_moe",
        "qwen2moe",
        {
            "num_experts": 5,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 32,
            "shared_expert_intermediate_size": 64,
        },
        {
            "expert_count": 5,
            "expert_used_count": 2,
            "expert_feed_forward_length": 32,
            "expert_shared_feed_forward_length": 64,
        },
    ),
    "qwen3moe": Family(
        "qwen3_moe",
        "qwen3moe",
        {
            "num_experts": 5,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": 32,
            "norm_topk_prob": True,
            "head_dim": 32,
        },
        {"expert_count": 5, "expert_used_count": 3, "expert_feed_forward_length": 32},
    ),
}


def model(family: Family) -> Any:
    """A model of transformers with random weights."""
    libraries.load()
    import transformers

    torch.manual_seed(5)
    options = {
        "vocab_size": len(TOKENS),
        "hidden_size": WIDTH,
        "intermediate_size": HIDDEN,
        "num_hidden_layers": family.layers,
        "num_attention_heads": HEADS,
        **({"n_inner": HIDDEN} if family.model_type == "gpt2" else {"num_key_value_heads": KV_HEADS}),
        "max_position_embeddings": CONTEXT,
        "tie_word_embeddings": family.model_type in ("gemma", "gemma2", "gpt2"),
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": None,
        **family.options,
    }
    config = transformers.AutoConfig.for_model(family.model_type, **options)
    made = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    for parameter in made.parameters():  # biases begin as zeros and norms as ones, which hides mistakes
        parameter.data = 3 * parameter.data + 0.05 * torch.randn_like(parameter)
    return made.float().eval()


def write_gguf(path: Path, family: Family, model: Any, experts: Any = None) -> Path:
    """`experts` is the type in which the matrices of experts are stored. None: float32."""
    config, name = model.config, family.architecture
    out = gguf.GGUFWriter(path, name)
    facts = {
        "block_count": family.layers,
        "context_length": CONTEXT,
        "embedding_length": WIDTH,
        "feed_forward_length": HIDDEN,
        "attention.head_count": HEADS,
        **family.facts,
    }
    if name != "gpt2":
        size = getattr(config, "head_dim", None) or WIDTH // HEADS
        facts |= {"attention.head_count_kv": KV_HEADS, "attention.key_length": size}
        facts |= {"attention.value_length": size}
        rope = getattr(config, "rope_parameters", None) or {}
        facts = {"rope.freq_base": rope.get("rope_theta", 10000.0), **facts}
    eps = {"rms_norm_eps": "layer_norm_rms_epsilon"}
    for key in ("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_epsilon"):
        if hasattr(config, key):
            facts[f"attention.{eps.get(key, 'layer_norm_epsilon')}"] = getattr(config, key)
    for key, value in facts.items():
        _add_fact(out, f"{name}.{key}", value)
    _add_vocabulary(out)
    for key, value in {**dict(_tensors(family, model)), **family.tensors}.items():
        if experts is not None and "_exps" in key:
            out.add_tensor(key, gguf.quants.quantize(value, experts), raw_dtype=experts)
        else:
            out.add_tensor(key, value)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    return path


def _add_fact(out: gguf.GGUFWriter, key: str, value: Any) -> None:
    add = {int: out.add_uint32, float: out.add_float32, str: out.add_string}[type(value)]
    add(key, value)


def _add_vocabulary(out: gguf.GGUFWriter) -> None:
    from tests.llm.tiny_models import MERGES

    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre("smollm")
    out.add_token_list(TOKENS)
    out.add_token_types([3] * len(SPECIAL) + [1] * (len(TOKENS) - len(SPECIAL)))
    out.add_token_merges(MERGES)
    out.add_bos_token_id(1)
    out.add_eos_token_id(2)
    out.add_chat_template(TEMPLATE)


def _tensors(family: Family, model: Any) -> Iterator[tuple[str, Any]]:
    kind = next(arch for arch, name in gguf.MODEL_ARCH_NAMES.items() if name == family.architecture)
    names = gguf.get_tensor_name_map(kind, family.layers)
    for name, parameter in model.state_dict().items():
        if name == "lm_head.weight" and model.config.tie_word_embeddings:
            continue
        if name.endswith("experts.gate_up_proj"):
            parts = zip(("gate", "up"), parameter.chunk(2, dim=1), strict=True)
            named = {f"{name.removesuffix('gate_up_proj')}{part}_proj.weight": half for part, half in parts}
        else:
            named = {name if name.endswith((".weight", ".bias")) else f"{name}.weight": parameter}
        for each, tensor in named.items():
            ours = names.get_name(each, try_suffixes=(".weight", ".bias"))
            assert ours is not None, each
            yield ours, _stored(family, model.config, each, tensor).contiguous().numpy()


def _stored(family: Family, config: Any, name: str, tensor: torch.Tensor) -> torch.Tensor:
    if family.norm_offset and name.endswith("norm.weight"):
        return tensor + family.norm_offset
    if family.permuted and ".q_proj." in name:
        return _pairs(tensor, config.num_attention_heads)
    if family.permuted and ".k_proj." in name:
        return _pairs(tensor, config.num_key_value_heads)
    if name.endswith("shared_expert_gate.weight"):
        return tensor[0]
    if family.model_type == "gpt2" and tensor.dim() == 2 and ".h." in name:
        return tensor.T
    return tensor


def _pairs(tensor: torch.Tensor, heads: int) -> torch.Tensor:
    """Rows of halves (i, i + D/2) in the order of pairs (2i, 2i+1)."""
    halves = tensor.reshape(heads, 2, tensor.shape[0] // heads // 2, *tensor.shape[1:])
    return halves.transpose(1, 2).reshape(tensor.shape)


def logits(model: Any, tokens: list[int]) -> Any:
    """Of every position: [S, vocabulary]."""
    with torch.no_grad():
        return model(input_ids=torch.tensor([tokens])).logits[0].numpy()
