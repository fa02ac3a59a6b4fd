"""All models of the zoo, by name."""

from __future__ import annotations

import functools

from tests.zoo import diffusion, images, text
from tests.zoo.model import Model

# Small ones of every kind, for `make test-all`; each in a mode that ExecuTorch can export it in.
LEAN = {
    "timm/test_convnext": "vulkan static",
    "timm/test_efficientnet_ln": "vulkan dynamic",
    "timm/test_nfnet": "pteron dynamic",
    "timm/test_resnet": "portable dynamic",
    "timm/test_vit": "portable static",
    "transformers/BertModel": "portable dynamic",
    "transformers/FalconForCausalLM alibi": "vulkan dynamic",
    "transformers/GPTNeoXForCausalLM": "vulkan dynamic",
    "transformers/LlamaForCausalLM bfloat16": "portable dynamic",
    "transformers/Phi3ForCausalLM": "pteron dynamic",
    "transformers/T5Model": "portable dynamic",
    "diffusers/AutoencoderTiny": "vulkan dynamic",
}


@functools.cache
def table() -> dict[str, Model]:
    listed = [*images.models(), *text.models(), *diffusion.models()]
    by_name = {model.name: model for model in listed}
    assert len(by_name) == len(listed), "a model stands in the table twice"
    return by_name
