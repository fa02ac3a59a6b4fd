"""All models of the zoo, by name."""

from __future__ import annotations

import functools

from tests.zoo import diffusion, images, text
from tests.zoo.model import Model

# Small ones of every kind, for `make test`.
LEAN = (
    "timm/test_convnext",
    "timm/test_efficientnet_ln",
    "timm/test_nfnet",
    "timm/test_resnet",
    "timm/test_vit",
    "transformers/BertModel",
    "transformers/FalconForCausalLM alibi",
    "transformers/GPTNeoXForCausalLM",
    "transformers/LlamaForCausalLM bfloat16",
    "transformers/Phi3ForCausalLM",
    "transformers/T5Model",
    "diffusers/AutoencoderTiny",
)


@functools.cache
def table() -> dict[str, Model]:
    listed = [*images.models(), *text.models(), *diffusion.models()]
    by_name = {model.name: model for model in listed}
    assert len(by_name) == len(listed), "a model stands in the table twice"
    return by_name
