"""Models of torchaudio, in small configurations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from tests.zoo import libraries
from tests.zoo.model import BATCH, Inputs, Model

Make = Callable[[Any], nn.Module]  # from the module torchaudio.models

WAV2VEC2: dict[str, Any] = {
    "extractor_mode": "group_norm",
    "extractor_conv_layer_config": [(16, 10, 5), (16, 3, 2)],
    "extractor_conv_bias": False,
    "encoder_embed_dim": 32,
    "encoder_projection_dropout": 0.0,
    "encoder_pos_conv_kernel": 16,
    "encoder_pos_conv_groups": 4,
    "encoder_num_layers": 1,
    "encoder_num_heads": 4,
    "encoder_attention_dropout": 0.0,
    "encoder_ff_interm_features": 48,
    "encoder_ff_interm_dropout": 0.0,
    "encoder_dropout": 0.0,
    "encoder_layer_norm_first": False,
    "encoder_layer_drop": 0.0,
    "aux_num_out": 10,
}


def models() -> Iterator[Model]:
    yield audio("Conformer", lambda m: WithLengths(m.Conformer(16, 4, 32, 1, 7)), noise(12, 16))
    yield audio("ConvTasNet", lambda m: m.ConvTasNet(2, 16, 16, 3, 8, 16, 2, 1), noise(1, 400))
    yield audio("DeepSpeech", lambda m: m.DeepSpeech(16, 24, 10), noise(1, 12, 16))
    yield audio("Emformer", lambda m: WithLengths(m.Emformer(16, 4, 32, 1, 4)), noise(12, 16))
    yield audio("Wav2Letter", lambda m: m.Wav2Letter(10, "mfcc", 13), noise(13, 60))
    yield audio("Wav2Vec2Model", lambda m: m.wav2vec2_model(**WAV2VEC2), noise(800))
    buckets = {"encoder_num_buckets": 16, "encoder_max_distance": 32}
    yield audio("WavLM", lambda m: m.wavlm_model(**WAV2VEC2, **buckets), noise(800))
    yield audio(
        "WaveRNN",
        lambda m: m.WaveRNN([2, 2], 16, 4, 1, 16, 16, 3, 8, 8, 8),
        several(noise(1, 24), noise(1, 8, 8)),
    )


def audio(name: str, make: Make, inputs: Callable[[int], Inputs]) -> Model:
    live = (0,) * len(inputs(2))
    return Model(f"torchaudio/{name}", "torchaudio", lambda: make(torchaudio_models()), inputs, live, BATCH)


def torchaudio_models() -> Any:
    return libraries.load_torchaudio().models


class WithLengths(nn.Module):
    """A model that also takes the length of each row. Here all rows have the full length."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        lengths = torch.full((x.shape[0],), x.shape[1])
        result: torch.Tensor = self.model(x, lengths)[0]
        return result


def noise(*shape: int) -> Callable[[int], Inputs]:
    """A batch of n rows of this shape."""
    return lambda n: (torch.randn(n, *shape, generator=torch.Generator().manual_seed(n)),)


def several(*arguments: Callable[[int], Inputs]) -> Callable[[int], Inputs]:
    return lambda n: tuple(x for argument in arguments for x in argument(n))
