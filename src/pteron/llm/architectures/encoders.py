"""Encoders, such as BERT: they turn a text into one vector, its embedding."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from math import inf

from pteron.errors import FormatError
from pteron.llm.architectures.architecture import Activation
from pteron.llm.architectures.config import Rotary
from pteron.llm.architectures.layout import Expected
from pteron.llm.architectures.tensors import Tensors

# Hugging Face's names of modules, and ours, which are those of GGUF.
BERT_NAMES = {
    "embeddings.word_embeddings": "token_embd",
    "embeddings.position_embeddings": "position_embd",
    "embeddings.token_type_embeddings": "token_types",
    "embeddings.LayerNorm": "token_embd_norm",
    "encoder.layer.{n}.attention.self.query": "blk.{n}.attn_q",
    "encoder.layer.{n}.attention.self.key": "blk.{n}.attn_k",
    "encoder.layer.{n}.attention.self.value": "blk.{n}.attn_v",
    "encoder.layer.{n}.attention.output.dense": "blk.{n}.attn_output",
    "encoder.layer.{n}.attention.output.LayerNorm": "blk.{n}.attn_output_norm",
    "encoder.layer.{n}.intermediate.dense": "blk.{n}.ffn_up",
    "encoder.layer.{n}.output.dense": "blk.{n}.ffn_down",
    "encoder.layer.{n}.output.LayerNorm": "blk.{n}.layer_output_norm",
}
DISTILBERT_NAMES = {
    "embeddings.word_embeddings": "token_embd",
    "embeddings.position_embeddings": "position_embd",
    "embeddings.LayerNorm": "token_embd_norm",
    "transformer.layer.{n}.attention.q_lin": "blk.{n}.attn_q",
    "transformer.layer.{n}.attention.k_lin": "blk.{n}.attn_k",
    "transformer.layer.{n}.attention.v_lin": "blk.{n}.attn_v",
    "transformer.layer.{n}.attention.out_lin": "blk.{n}.attn_output",
    "transformer.layer.{n}.sa_layer_norm": "blk.{n}.attn_output_norm",
    "transformer.layer.{n}.ffn.lin1": "blk.{n}.ffn_up",
    "transformer.layer.{n}.ffn.lin2": "blk.{n}.ffn_down",
    "transformer.layer.{n}.output_layer_norm": "blk.{n}.layer_output_norm",
}
NOMIC_NAMES = {
    "embeddings.word_embeddings": "token_embd",
    "embeddings.token_type_embeddings": "token_types",
    "embeddings.LayerNorm": "token_embd_norm",
    "layers.{n}.self_attn.q_proj": "blk.{n}.attn_q",
    "layers.{n}.self_attn.k_proj": "blk.{n}.attn_k",
    "layers.{n}.self_attn.v_proj": "blk.{n}.attn_v",
    "layers.{n}.self_attn.o_proj": "blk.{n}.attn_output",
    "layers.{n}.post_attention_layernorm": "blk.{n}.attn_output_norm",
    "layers.{n}.mlp.gate_proj": "blk.{n}.ffn_gate",
    "layers.{n}.mlp.up_proj": "blk.{n}.ffn_up",
    "layers.{n}.mlp.down_proj": "blk.{n}.ffn_down",
    "layers.{n}.post_mlp_layernorm": "blk.{n}.layer_output_norm",
    # The names of the files that the makers published.
    "emb_ln": "token_embd_norm",
    "encoder.layers.{n}.attn.Wqkv": "blk.{n}.attn_qkv",
    "encoder.layers.{n}.attn.out_proj": "blk.{n}.attn_output",
    "encoder.layers.{n}.norm1": "blk.{n}.attn_output_norm",
    "encoder.layers.{n}.mlp.fc11": "blk.{n}.ffn_up",
    "encoder.layers.{n}.mlp.fc12": "blk.{n}.ffn_gate",
    "encoder.layers.{n}.mlp.fc2": "blk.{n}.ffn_down",
    "encoder.layers.{n}.norm2": "blk.{n}.layer_output_norm",
}


class Pooling(IntEnum):
    """How the vectors of all tokens become one, with GGUF's numbers."""

    MEAN = 1
    CLS = 2  # the vector of the first token
    LAST = 3


@dataclass(frozen=True, slots=True)
class EncoderArchitecture:
    """A family of encoders. Biases are not listed: a linear layer has one if the file does."""

    name: str  # GGUF's `general.architecture`
    model_types: tuple[str, ...]  # `model_type` in a config.json of Hugging Face
    hf_names: Mapping[str, str]
    activation: Activation = "gelu"
    is_gated: bool = False  # the MLP is down(activation(gate(x)) * up(x)), else down(activation(up(x)))
    is_rotary: bool = False  # positions rotate queries and keys. Otherwise a vector for each is added.
    padding_first: bool = False  # positions begin after the number of the padding token


ENCODERS = (
    EncoderArchitecture("bert", ("bert",), BERT_NAMES),
    EncoderArchitecture("bert", ("roberta", "xlm-roberta", "camembert"), BERT_NAMES, padding_first=True),
    EncoderArchitecture("bert", ("distilbert",), DISTILBERT_NAMES),
    EncoderArchitecture("nomic-bert", ("nomic_bert",), NOMIC_NAMES, "silu", is_gated=True, is_rotary=True),
)


@dataclass(frozen=True, slots=True)
class EncoderConfig:
    architecture: EncoderArchitecture
    name: str
    layers: int
    width: int
    hidden: int
    heads: int
    vocabulary: int
    context: int  # the positions that the model was trained for
    longest: int  # the most tokens that a text should have
    epsilon: float
    rotary: Rotary | None
    activation: Activation
    pooling: Pooling
    normalize: bool  # whether the embedding has length 1

    @property
    def head_size(self) -> int:
        return self.width // self.heads

    @property
    def queries(self) -> int:
        return self.width


def check_encoder_config(config: EncoderConfig, source: str) -> EncoderConfig:
    """Refuse sizes that cannot be those of a model."""
    sizes = (config.layers, config.width, config.hidden, config.heads, config.context, config.longest)
    if min(sizes) < 1 or config.width % config.heads or not 0 < config.epsilon < inf:
        raise FormatError(f"{source}: its sizes do not fit together: {config}")
    return config


def encoder_layout(config: EncoderConfig, tensors: Tensors) -> Iterator[Expected]:
    family, width, hidden = config.architecture, config.width, config.hidden
    yield "token_embd.weight", (config.vocabulary, width), True
    if "token_types.weight" in tensors:
        yield "token_types.weight", (tensors.shape("token_types.weight")[0], width), True
    yield "position_embd.weight", (config.context, width), not family.is_rotary
    linears = {"attn_output": (width, width), "ffn_up": (hidden, width), "ffn_down": (width, hidden)}
    if family.is_gated:
        linears["ffn_gate"] = (hidden, width)
    norms = ["token_embd_norm"]
    for block in (f"blk.{number}." for number in range(config.layers)):
        norms += [f"{block}attn_output_norm", f"{block}layer_output_norm"]
        is_fused = f"{block}attn_qkv.weight" in tensors
        inputs = (
            {"attn_qkv": (3 * width, width)} if is_fused else {f"attn_{x}": (width, width) for x in "qkv"}
        )
        for name, shape in (inputs | linears).items():
            yield f"{block}{name}.weight", shape, True
            yield f"{block}{name}.bias", shape[:1], False
    for name in norms:
        yield f"{name}.weight", (width,), True
        yield f"{name}.bias", (width,), True
