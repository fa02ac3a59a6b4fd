"""What all models of one family have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

NormKind = Literal["rms", "layer"]
Activation = Literal["silu", "gelu", "gelu_tanh"]

# Hugging Face's names of modules, and ours, which are those of GGUF. {n} is a layer, {e} an expert.
LLAMA_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "model.layers.{n}.input_layernorm": "blk.{n}.attn_norm",
    "model.layers.{n}.post_attention_layernorm": "blk.{n}.ffn_norm",
    "model.layers.{n}.self_attn.q_proj": "blk.{n}.attn_q",
    "model.layers.{n}.self_attn.k_proj": "blk.{n}.attn_k",
    "model.layers.{n}.self_attn.v_proj": "blk.{n}.attn_v",
    "model.layers.{n}.self_attn.o_proj": "blk.{n}.attn_output",
    "model.layers.{n}.self_attn.q_norm": "blk.{n}.attn_q_norm",
    "model.layers.{n}.self_attn.k_norm": "blk.{n}.attn_k_norm",
    "model.layers.{n}.mlp.gate_proj": "blk.{n}.ffn_gate",
    "model.layers.{n}.mlp.up_proj": "blk.{n}.ffn_up",
    "model.layers.{n}.mlp.down_proj": "blk.{n}.ffn_down",
    "model.layers.{n}.mlp.gate": "blk.{n}.ffn_gate_inp",
    "model.layers.{n}.mlp.experts.{e}.gate_proj": "blk.{n}.ffn_gate_exps.{e}",
    "model.layers.{n}.mlp.experts.{e}.up_proj": "blk.{n}.ffn_up_exps.{e}",
    "model.layers.{n}.mlp.experts.{e}.down_proj": "blk.{n}.ffn_down_exps.{e}",
    "model.layers.{n}.mlp.shared_expert_gate": "blk.{n}.ffn_gate_inp_shexp",
    "model.layers.{n}.mlp.shared_expert.gate_proj": "blk.{n}.ffn_gate_shexp",
    "model.layers.{n}.mlp.shared_expert.up_proj": "blk.{n}.ffn_up_shexp",
    "model.layers.{n}.mlp.shared_expert.down_proj": "blk.{n}.ffn_down_shexp",
}


@dataclass(frozen=True, slots=True)
class Architecture:
    """A family of decoders. Sizes and other facts of one model are in its Config.

    Biases are not listed: a linear layer has one if the file does.
    """

    name: str  # GGUF's `general.architecture`
    model_types: tuple[str, ...]  # `model_type` in a config.json of Hugging Face
    norm: NormKind = "rms"
    norms: tuple[str, ...] = ("attn_norm", "ffn_norm")  # of a block: before and after attention and MLP
    optional_norms: tuple[str, ...] = ()
    head_norm: Literal["none", "head", "row"] = "none"  # queries and keys: each head, or all heads at once
    activation: Activation = "silu"
    is_gated: bool = True  # the MLP is down(activation(gate(x)) * up(x)), else down(activation(up(x)))
    fused_qkv: bool = False  # one tensor `attn_qkv`: the rows of q, then k, then v
    fused_gate_up: bool = False  # the tensor `ffn_up` has the rows of the gate, then those of up
    has_shared_expert: bool = False  # of a mixture: one more MLP, which every token uses, with a gate
    normalizes_experts: bool = True  # the shares of the chosen experts add up to 1
    learned_positions: bool = False  # a table `position_embd`, instead of rotation
    scales_embedding: bool = False  # tokens' vectors are multiplied by sqrt(width)
    full_every: int = 0  # every n-th layer sees all keys, the others only the window; 0: none does
    unrotated_every: int = 0  # every n-th layer does not rotate; 0: all rotate
    local_base: float | None = None  # the rotary base of layers with a window, if it is another
    # How files store it.
    pairs_in_gguf: bool = False  # q and k for rotation of pairs (2i, 2i+1) instead of halves (i, i + D/2)
    hf_names: Mapping[str, str] = field(default_factory=lambda: LLAMA_NAMES, compare=False, repr=False)
    hf_transposed: bool = False  # Hugging Face stores the matrices of layers as [in, out]
    # Hugging Face's `attn_qkv` has, for each head of keys, its queries, then the key, then the value.
    hf_grouped_qkv: bool = False
    hf_norm_offset: float = 0.0  # what Hugging Face's norms add to their weights; GGUF has the sum
