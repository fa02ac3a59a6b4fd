"""Models of diffusers: denoisers and autoencoders, with a few channels."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from tests.zoo import libraries
from tests.zoo.model import BATCH, Calling, Inputs, Model, image

CHANNELS = {"block_out_channels": (8, 16), "norm_num_groups": 4, "layers_per_block": 1}
UNET = {**CHANNELS, "sample_size": 16, "attention_head_dim": 4}
CONDITION = {**UNET, "cross_attention_dim": 16}
TRANSFORMER = {"num_attention_heads": 2, "attention_head_dim": 16, "num_layers": 1}


def models() -> Iterator[Model]:
    blocks = {
        "down_block_types": ("DownBlock2D", "AttnDownBlock2D"),
        "up_block_types": ("AttnUpBlock2D", "UpBlock2D"),
    }
    cross = {
        "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"),
        "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D"),
    }
    yield denoiser("UNet2DModel", {**UNET, **blocks}, noisy(3), ("sample", "timestep"))
    yield denoiser(
        "UNet2DConditionModel",
        {**CONDITION, **cross},
        prompted(4),
        ("sample", "timestep", "encoder_hidden_states"),
    )
    encode = {"down_block_types": ("DownEncoderBlock2D",) * 2, "up_block_types": ("UpDecoderBlock2D",) * 2}
    yield coder("AutoencoderKL", {**CHANNELS, **encode, "latent_channels": 4})
    yield coder("VQModel", {**CHANNELS, **encode, "latent_channels": 4, "num_vq_embeddings": 16})
    tiny = {"encoder_block_out_channels": (8, 8), "decoder_block_out_channels": (8, 8)}
    more = {"num_encoder_blocks": (1, 1), "num_decoder_blocks": (1, 1)}
    yield coder("AutoencoderTiny", {**tiny, **more})
    dit = {**TRANSFORMER, "sample_size": 8, "patch_size": 2, "in_channels": 4, "num_embeds_ada_norm": 10}
    yield denoiser("DiTTransformer2DModel", dit, labelled(4), ("hidden_states", "timestep", "class_labels"))
    pixart = {
        **TRANSFORMER,
        "sample_size": 8,
        "caption_channels": 16,
        "cross_attention_dim": 32,
        "in_channels": 4,
    }
    yield denoiser(
        "PixArtTransformer2DModel",
        {**pixart, "use_additional_conditions": False},
        prompted(4, 8),
        ("hidden_states", "timestep", "encoder_hidden_states"),
    )
    yield denoiser("UNet1DModel", UNET_1D, sequence, ("sample", "timestep"))


UNET_1D = {
    "block_out_channels": (8, 16),
    "in_channels": 4,
    "out_channels": 4,
    "down_block_types": ("DownResnetBlock1D", "DownResnetBlock1D"),
    "up_block_types": ("UpResnetBlock1D",),
    "mid_block_type": "MidResTemporalBlock1D",
    "out_block_type": "OutConv1DBlock",
    "time_embedding_type": "positional",
    "use_timestep_embedding": True,
    "act_fn": "swish",
    "norm_num_groups": 4,
    "layers_per_block": 1,
    "downsample_each_block": False,
}


def denoiser(
    name: str, options: dict[str, Any], inputs: Callable[[int], Inputs], names: tuple[str, ...]
) -> Model:
    make = functools.partial(called, name, options, names)
    count = len(inputs(2))
    return Model(f"diffusers/{name}", "diffusers", make, inputs, (0,) * count, BATCH)


def called(name: str, options: dict[str, Any], names: tuple[str, ...]) -> nn.Module:
    return Calling(made(name, options), names, return_dict=False)


def coder(name: str, options: dict[str, Any]) -> Model:
    make = functools.partial(called, name, options, ("sample",))
    return Model(f"diffusers/{name}", "diffusers", make, image(32), (0,), BATCH)


def made(name: str, options: dict[str, Any]) -> nn.Module:
    libraries.load()
    import diffusers

    model: nn.Module = getattr(diffusers, name)(**options)
    return model


def noisy(channels: int, size: int = 16) -> Callable[[int], Inputs]:
    return lambda n: (*image(size, channels)(n), torch.arange(n) * 7 + 1)


def prompted(channels: int, size: int = 16) -> Callable[[int], Inputs]:
    return lambda n: (
        *noisy(channels, size)(n),
        torch.randn(n, 6, 16, generator=torch.Generator().manual_seed(n)),
    )


def labelled(channels: int) -> Callable[[int], Inputs]:
    return lambda n: (*noisy(channels, 8)(n), torch.arange(n))


def sequence(n: int) -> Inputs:
    return (torch.randn(n, 4, 16, generator=torch.Generator().manual_seed(n)), torch.arange(n) * 7 + 1)
