"""The families of decoders that Pteron converts. A new family is a record here."""

from __future__ import annotations

from pteron.llm.architectures.architecture import LLAMA_NAMES, Architecture


def _renamed(modules: dict[str, str]) -> dict[str, str]:
    """LLAMA_NAMES, where these modules of a layer have other names or another meaning."""
    return LLAMA_NAMES | {f"model.layers.{{n}}.{hf}": f"blk.{{n}}.{ours}" for hf, ours in modules.items()}


LLAMA = Architecture(
    "llama",
    ("llama", "mistral", "mixtral"),
    pairs_in_gguf=True,
    hf_names=_renamed(
        {
            "block_sparse_moe.gate": "ffn_gate_inp",
            "block_sparse_moe.experts.{e}.w1": "ffn_gate_exps.{e}",
            "block_sparse_moe.experts.{e}.w3": "ffn_up_exps.{e}",
            "block_sparse_moe.experts.{e}.w2": "ffn_down_exps.{e}",
        }
    ),
)

QWEN2 = Architecture("qwen2", ("qwen2",))

QWEN2_MOE = Architecture("qwen2moe", ("qwen2_moe",), has_shared_expert=True, normalizes_experts=False)

QWEN3 = Architecture("qwen3", ("qwen3",), head_norm="head")

QWEN3_MOE = Architecture("qwen3moe", ("qwen3_moe",), head_norm="head")

GEMMA = Architecture("gemma", ("gemma",), activation="gelu_tanh", scales_embedding=True, hf_norm_offset=1.0)

GEMMA2 = Architecture(
    "gemma2",
    ("gemma2",),
    norms=("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"),
    activation="gelu_tanh",
    scales_embedding=True,
    full_every=2,
    hf_norm_offset=1.0,
    hf_names=_renamed(
        {
            "post_attention_layernorm": "post_attention_norm",
            "pre_feedforward_layernorm": "ffn_norm",
            "post_feedforward_layernorm": "post_ffw_norm",
        }
    ),
)

GEMMA3 = Architecture(
    "gemma3",
    ("gemma3_text", "gemma3"),
    norms=GEMMA2.norms,
    head_norm="head",
    activation="gelu_tanh",
    scales_embedding=True,
    full_every=6,
    local_base=10000.0,
    hf_norm_offset=1.0,
    hf_names=GEMMA2.hf_names,
)

PHI3 = Architecture(
    "phi3",
    ("phi3",),
    fused_qkv=True,
    fused_gate_up=True,
    hf_names=_renamed({"self_attn.qkv_proj": "attn_qkv", "mlp.gate_up_proj": "ffn_up"}),
)

OLMO2 = Architecture(
    "olmo2",
    ("olmo2",),
    norms=("post_attention_norm", "post_ffw_norm"),
    head_norm="row",
    hf_names=_renamed(
        {"post_attention_layernorm": "post_attention_norm", "post_feedforward_layernorm": "post_ffw_norm"}
    ),
)

GRANITE = Architecture("granite", ("granite",), pairs_in_gguf=True)

SMOLLM3 = Architecture("smollm3", ("smollm3",), unrotated_every=4, pairs_in_gguf=True)

STARCODER2 = Architecture(
    "starcoder2",
    ("starcoder2",),
    norm="layer",
    activation="gelu_tanh",
    is_gated=False,
    hf_names=_renamed({"mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"}),
)

# A large model of this family has no ffn_norm: its MLP runs parallel to attention.
STABLELM = Architecture(
    "stablelm", ("stablelm",), norm="layer", norms=("attn_norm",), optional_norms=("ffn_norm",)
)

INTERNLM2 = Architecture(
    "internlm2",
    ("internlm2",),
    pairs_in_gguf=True,
    hf_grouped_qkv=True,
    hf_names={
        "model.tok_embeddings": "token_embd",
        "model.norm": "output_norm",
        "output": "output",
        "model.layers.{n}.attention_norm": "blk.{n}.attn_norm",
        "model.layers.{n}.attention.wqkv": "blk.{n}.attn_qkv",
        "model.layers.{n}.attention.wo": "blk.{n}.attn_output",
        "model.layers.{n}.ffn_norm": "blk.{n}.ffn_norm",
        "model.layers.{n}.feed_forward.w1": "blk.{n}.ffn_gate",
        "model.layers.{n}.feed_forward.w3": "blk.{n}.ffn_up",
        "model.layers.{n}.feed_forward.w2": "blk.{n}.ffn_down",
    },
)

GPT2 = Architecture(
    "gpt2",
    ("gpt2",),
    norm="layer",
    activation="gelu_tanh",
    is_gated=False,
    fused_qkv=True,
    learned_positions=True,
    hf_transposed=True,
    hf_names={
        "transformer.wte": "token_embd",
        "transformer.wpe": "position_embd",
        "transformer.ln_f": "output_norm",
        "lm_head": "output",
        "transformer.h.{n}.ln_1": "blk.{n}.attn_norm",
        "transformer.h.{n}.attn.c_attn": "blk.{n}.attn_qkv",
        "transformer.h.{n}.attn.c_proj": "blk.{n}.attn_output",
        "transformer.h.{n}.ln_2": "blk.{n}.ffn_norm",
        "transformer.h.{n}.mlp.c_fc": "blk.{n}.ffn_up",
        "transformer.h.{n}.mlp.c_proj": "blk.{n}.ffn_down",
    },
)

# By GGUF's name.
ARCHITECTURES = {
    family.name: family
    for family in (
        LLAMA,
        QWEN2,
        QWEN2_MOE,
        QWEN3,
        QWEN3_MOE,
        GEMMA,
        GEMMA2,
        GEMMA3,
        PHI3,
        OLMO2,
        GRANITE,
        SMOLLM3,
        STARCODER2,
        STABLELM,
        INTERNLM2,
        GPT2,
    )
}
