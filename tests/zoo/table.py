"""All models of the zoo, by name."""

from __future__ import annotations

import functools

from tests.zoo import audio, diffusion, images, plain, text
from tests.zoo.model import Model

# A dozen small ones of every kind, for `make test`, in modes that ExecuTorch can export them in.
SMALL = {
    "timm/test_byobnet": "xnnpack int8 static",
    "timm/test_convnext": "portable static",
    "timm/test_efficientnet": "xnnpack dynamic",
    "timm/test_resnet": "portable dynamic",
    "timm/test_vit": "portable static",
    "transformers/BertModel": "portable dynamic",
    "transformers/DistilBertModel": "portable dynamic",
    "transformers/FalconForCausalLM alibi": "portable static",
    "transformers/GPTNeoXForCausalLM": "vulkan static",
    "transformers/LlamaForCausalLM bfloat16": "portable static",
    "transformers/Phi3ForCausalLM": "portable static",
    "transformers/ViTModel": "portable dynamic",
    "transformers/WhisperEncoder": "portable static",
    "diffusers/AutoencoderTiny": "portable dynamic",
    "torch/LSTM": "vulkan dynamic",
}

# Models and modes that take the exporter longer, for `make test-all`.
LONGER = {
    "timm/test_convnext": "vulkan static",
    "timm/test_efficientnet_ln": "vulkan dynamic",
    "timm/test_nfnet": "pteron dynamic",
    "timm/test_vit": "pteron dynamic",
    "transformers/FalconForCausalLM alibi": "vulkan dynamic",
    "transformers/GPT2LMHeadModel 2 rows": "pteron dynamic",
    "transformers/GPTNeoXForCausalLM": "vulkan dynamic",
    "transformers/LlamaForCausalLM static cache": "pteron dynamic",
    "transformers/Phi3ForCausalLM": "pteron dynamic",
    "transformers/T5Model": "portable static",
    "torch/GRU": "portable static",
    "torch/TransformerEncoder": "vulkan dynamic",
}


@functools.cache
def table() -> dict[str, Model]:
    listed = [*images.models(), *text.models(), *diffusion.models(), *audio.models(), *plain.models()]
    by_name = {model.name: model for model in listed}
    assert len(by_name) == len(listed), "a model stands in the table twice"
    return by_name
