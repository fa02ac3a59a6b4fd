"""Models of transformers: each architecture in a configuration of one small layer, or one of each kind."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from tests.zoo import libraries
from tests.zoo.model import LENGTHS, Calling, Inputs, Model, words

TINY: dict[str, Any] = {
    "vocab_size": 96,
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
GPT: dict[str, Any] = {
    "vocab_size": 96,
    "n_embd": 32,
    "n_layer": 1,
    "n_head": 4,
    "n_positions": 64,
    "n_ctx": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
ALTERNATING = {"num_hidden_layers": 2}  # two kinds of layers, in turn
GROUPED = {"num_key_value_heads": 2, "head_dim": 8}

# Encoders: the model's class, and what its configuration has beside the usual.
ENCODERS: dict[str, dict[str, Any]] = {
    "AlbertModel": {"embedding_size": 16},
    "BertModel": {},
    "BigBirdModel": {"attention_type": "original_full"},
    "CamembertModel": {},
    "ConvBertModel": {"embedding_size": 32},
    "DebertaModel": {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "type_vocab_size": 0},
    "DebertaV2Model": {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "type_vocab_size": 0},
    "DistilBertModel": {"dim": 32, "n_layers": 1, "n_heads": 4, "hidden_dim": 48},
    "ElectraModel": {"embedding_size": 16},
    "ErnieModel": {},
    "EsmModel": {"position_embedding_type": "rotary"},
    "FNetModel": {},
    "IBertModel": {},
    "MPNetModel": {},
    "MegatronBertModel": {},
    "MobileBertModel": {
        "embedding_size": 16,
        "intra_bottleneck_size": 16,
        "true_hidden_size": 16,
        "num_feedforward_networks": 2,
    },
    "ModernBertModel": {**ALTERNATING, "global_attn_every_n_layers": 2, "local_attention": 8},
    "NystromformerModel": {"num_landmarks": 4, "segment_means_seq_len": 16},
    "RemBertModel": {"input_embedding_size": 16, "output_embedding_size": 16},
    "RoFormerModel": {"embedding_size": 32},
    "RobertaModel": {},
    "RobertaPreLayerNormModel": {},
    "SplinterModel": {},
    "SqueezeBertModel": {"embedding_size": 32},
    "XLMRobertaModel": {},
    "YosoModel": {"use_expectation": True},
}

# Decoders, without a cache.
DECODERS: dict[str, dict[str, Any]] = {
    "BioGptForCausalLM": {},
    "BloomForCausalLM": {"n_layer": 1, "n_head": 4},
    "CohereForCausalLM": GROUPED,
    "DeepseekV3ForCausalLM": {
        **ALTERNATING,
        "num_key_value_heads": 4,
        "q_lora_rank": 16,
        "kv_lora_rank": 16,
        "qk_rope_head_dim": 8,
        "qk_nope_head_dim": 8,
        "v_head_dim": 8,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "n_group": 2,
        "topk_group": 1,
        "moe_intermediate_size": 16,
        "first_k_dense_replace": 1,
    },
    "FalconForCausalLM": {"alibi": False},
    "FalconForCausalLM alibi": {"alibi": True},
    "GemmaForCausalLM": GROUPED,
    "Gemma2ForCausalLM": {**ALTERNATING, **GROUPED, "sliding_window": 8, "query_pre_attn_scalar": 8},
    "Gemma3ForCausalLM": {**ALTERNATING, **GROUPED, "sliding_window": 8, "query_pre_attn_scalar": 8},
    "GPTNeoXForCausalLM": {"rotary_pct": 0.5},
    "GraniteForCausalLM": GROUPED,
    "LlamaForCausalLM": GROUPED,
    "LlamaForCausalLM bfloat16": GROUPED,
    "MistralForCausalLM": {**GROUPED, "sliding_window": None},
    "MptForCausalLM": {"d_model": 32, "n_heads": 4, "n_layers": 1, "max_seq_len": 64},
    "OPTForCausalLM": {"word_embed_proj_dim": 32, "ffn_dim": 48},
    "OlmoForCausalLM": GROUPED,
    "Olmo2ForCausalLM": GROUPED,
    "PersimmonForCausalLM": {},
    "PhiForCausalLM": {"partial_rotary_factor": 0.5},
    "Phi3ForCausalLM": GROUPED,
    "Qwen2ForCausalLM": GROUPED,
    "Qwen3ForCausalLM": GROUPED,
    "SmolLM3ForCausalLM": {**ALTERNATING, **GROUPED, "no_rope_layers": [1, 0]},
    "StableLmForCausalLM": {"num_key_value_heads": 4, "partial_rotary_factor": 0.5},
    "Starcoder2ForCausalLM": {"num_key_value_heads": 2},
    "XGLMForCausalLM": {"d_model": 32, "num_layers": 1, "attention_heads": 4, "ffn_dim": 48},
}
GPTS = [
    "GPT2LMHeadModel",
    "GPTJForCausalLM",
    "CodeGenForCausalLM",
    "OpenAIGPTLMHeadModel",
    "GPTBigCodeForCausalLM",
]

# Images of 32 x 32 pixels.
VISION: dict[str, dict[str, Any]] = {
    "BeitModel": {},
    "DeiTModel": {},
    "Dinov2Model": {"mlp_ratio": 2},
    "ViTModel": {},
    "ViTMSNModel": {},
    "SiglipVisionModel": {},
    "CLIPVisionModel": {},
    "YolosModel": {"num_detection_tokens": 4, "image_size": (32, 32)},
}
ENCODER_DECODERS: dict[str, dict[str, Any]] = {
    "T5Model": {
        "d_model": 32,
        "d_kv": 8,
        "d_ff": 48,
        "num_layers": 1,
        "num_decoder_layers": 1,
        "num_heads": 4,
    },
    "MT5Model": {
        "d_model": 32,
        "d_kv": 8,
        "d_ff": 48,
        "num_layers": 1,
        "num_decoder_layers": 1,
        "num_heads": 4,
    },
    **{
        name: {
            "d_model": 32,
            "encoder_layers": 1,
            "decoder_layers": 1,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": 48,
            "decoder_ffn_dim": 48,
        }
        for name in ("BartModel", "MBartModel", "MarianModel", "PegasusModel", "BlenderbotSmallModel")
    },
}


def models() -> Iterator[Model]:
    yield from (text(name, {**TINY, **more}) for name, more in ENCODERS.items())
    yield from (text(name, {**TINY, **more}, use_cache=False) for name, more in DECODERS.items())
    yield from (text(name, GPT, use_cache=False) for name in GPTS)
    yield text("GPT2LMHeadModel 2 rows", GPT, rows=2, use_cache=False)
    for name, more in VISION.items():
        options = {**TINY, "image_size": 32, "patch_size": 8, **more}
        yield Model(
            f"transformers/{name}",
            "transformers",
            functools.partial(made, name, options),
            pixels,
            (0,),
            (3, 2),
        )
    yield Model(
        "transformers/ViTMAEModel", "transformers", masked_autoencoder, pixels_and_noise, (0, 0), (3, 2)
    )
    for name, more in ENCODER_DECODERS.items():
        make = functools.partial(encoder_decoder, name, {**TINY, **more})
        yield Model(f"transformers/{name}", "transformers", make, source_and_target, (1, None), LENGTHS)
    yield Model(
        "transformers/LlamaForCausalLM static cache",
        "transformers",
        static_cache,
        words_and_positions,
        (1, 0),
        LENGTHS,
    )
    yield Model("transformers/WhisperEncoder", "transformers", whisper_encoder, mel, (0,), (2, 1))
    yield Model("transformers/Wav2Vec2Model", "transformers", wav2vec2, wave, (0,), (3, 2))


def text(name: str, options: dict[str, Any], rows: int = 1, **call: Any) -> Model:
    make = functools.partial(named, name, options, **call)
    return Model(f"transformers/{name}", "transformers", make, words(rows=rows), (1,), LENGTHS)


def made(name: str, options: dict[str, Any]) -> nn.Module:
    """A model of a class, with a configuration of the matching class."""
    libraries.load()
    import transformers

    name, _, variant = name.partition(" ")
    cls = getattr(transformers, name)
    config = cls.config_class(**options)
    config._experts_implementation = "batched_mm"  # the one without operators that ExecuTorch refuses
    model: nn.Module = cls(config)
    return model.bfloat16() if variant == "bfloat16" else model


def named(name: str, options: dict[str, Any], **call: Any) -> nn.Module:
    return Calling(made(name, options), ("input_ids",), **call)


def encoder_decoder(name: str, options: dict[str, Any]) -> nn.Module:
    return Calling(made(name, options), ("input_ids", "decoder_input_ids"), use_cache=False)


def static_cache() -> nn.Module:
    """The module that transformers makes for ExecuTorch: its KV cache is in buffers."""
    libraries.load()
    from transformers import GenerationConfig
    from transformers.integrations.executorch import TorchExportableModuleWithStaticCache

    model: Any = made("LlamaForCausalLM", {**TINY, **GROUPED})
    model.generation_config = GenerationConfig(use_cache=True, cache_implementation="static")
    module = TorchExportableModuleWithStaticCache(model, batch_size=1, max_cache_len=max(LENGTHS))
    return Calling(module, ("input_ids", "cache_position"))


def words_and_positions(n: int) -> Inputs:
    """The tokens from the start, so that a result does not depend on earlier calls."""
    return (*words()(n), torch.arange(n))


def pixels(n: int) -> Inputs:
    return (torch.randn(n, 3, 32, 32, generator=torch.Generator().manual_seed(n)),)


def masked_autoencoder() -> nn.Module:
    """It orders the patches by noise, which is an input here, so that the result is not random."""
    options = {**TINY, "image_size": 32, "patch_size": 8, "mask_ratio": 0.5}
    return Calling(made("ViTMAEModel", options), ("pixel_values", "noise"))


def pixels_and_noise(n: int) -> Inputs:
    return (*pixels(n), torch.rand(n, 16, generator=torch.Generator().manual_seed(n)))


def source_and_target(n: int) -> Inputs:
    return (*words()(n), *words()(5))


def whisper_encoder() -> nn.Module:
    options = {
        "d_model": 32, "encoder_layers": 1, "encoder_attention_heads": 4, "encoder_ffn_dim": 48,
        "decoder_layers": 1, "decoder_attention_heads": 4, "num_mel_bins": 16, "max_source_positions": 40,
        "vocab_size": 96, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
        "decoder_start_token_id": 1,
    }  # fmt: skip
    encoder: nn.Module = made("WhisperModel", options).get_submodule("encoder")
    return encoder


def mel(n: int) -> Inputs:
    return (torch.randn(n, 16, 80, generator=torch.Generator().manual_seed(n)),)


def wav2vec2() -> nn.Module:
    options = {
        **TINY, "conv_dim": (16, 16), "conv_stride": (5, 2), "conv_kernel": (10, 3),
        "num_feat_extract_layers": 2,
        "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4,
    }  # fmt: skip
    return made("Wav2Vec2Model", options)


def wave(n: int) -> Inputs:
    return (torch.randn(n, 800, generator=torch.Generator().manual_seed(n)),)
