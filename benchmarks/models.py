"""Whole models with random weights, exported once for every side, to build/models.

    python -m benchmarks.models "ResNet-18 224×224"

Each side reads the file of its library. All get the same input, and are checked against torch's result.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parent.parent
PEERS = ROOT / ".venv-peers"
IMAGE = (1, 3, 224, 224)


@dataclass(frozen=True, slots=True)
class Model:
    make: Callable[[], Any]  # a torch module with one input and one result
    shape: tuple[int, ...]
    words: int = 0  # the input is this many different words, and not floats


def torchvision(name: str) -> Callable[[], Any]:
    def make() -> Any:
        from tests.zoo import libraries

        return libraries.load().models.get_model(name, weights=None)

    return make


def vision_transformer() -> Any:
    from tests.zoo import libraries

    libraries.load()
    import timm

    return timm.create_model("vit_small_patch16_224")


def bert() -> Any:
    import transformers

    return first_result(transformers.BertModel(transformers.BertConfig(), add_pooling_layer=False))


def whisper_encoder() -> Any:
    import transformers
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    sizes = {"d_model": 384, "encoder_layers": 4, "encoder_attention_heads": 6, "encoder_ffn_dim": 1536}
    return first_result(WhisperEncoder(transformers.WhisperConfig(**sizes)))


def first_result(module: Any) -> Any:
    from torch import nn

    class FirstResult(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, x: Any) -> Any:
            return self.module(x)[0]

    return FirstResult()


MODELS: Mapping[str, Model] = {
    "ResNet-18 224×224": Model(torchvision("resnet18"), IMAGE),
    "MobileNetV2 224×224": Model(torchvision("mobilenet_v2"), IMAGE),
    "MobileNetV3-large 224×224": Model(torchvision("mobilenet_v3_large"), IMAGE),
    "ViT-S/16 224×224": Model(vision_transformer, IMAGE),
    "ConvNeXt-tiny 224×224": Model(torchvision("convnext_tiny"), IMAGE),
    "BERT-base, 128 tokens": Model(bert, (1, 128), words=30522),
    "Whisper-tiny encoder": Model(whisper_encoder, (1, 80, 3000)),
}


def folder(name: str) -> Path:
    plain = "".join(c if c.isalnum() and c.isascii() else "-" for c in name)
    return ROOT / "build/models" / plain


def build(name: str) -> Any:
    """The torch module. Its batch norms get the statistics of one batch, so that values stay near 1."""
    import torch

    torch.manual_seed(0)
    model = MODELS[name]
    module = model.make()
    norms = [layer for layer in module.modules() if isinstance(layer, torch.nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = None
    if norms:
        with torch.no_grad():
            module.train()(torch.randn(4, *model.shape[1:]))
    return module.eval()


def export(name: str) -> None:
    """Write the files of all sides, unless they are there."""
    import torch

    import pteron

    target = folder(name)
    if (target / "expected.npy").exists():
        return
    target.mkdir(parents=True, exist_ok=True)
    model, module = MODELS[name], build(name)
    x = torch.randint(model.words, model.shape) if model.words else torch.randn(model.shape)
    pteron.export(module, (x,), target / "model.pte")
    with torch.no_grad():
        _export_for_peers(module, x, target)
        np.save(target / "x.npy", x.numpy())
        np.save(target / "expected.npy", module(x).numpy())  # the last file


def _export_for_peers(module: Any, x: Any, target: Path) -> None:
    """An ONNX file, and the files of ncnn. The exporters are in the environment of the peers."""
    import torch

    sys.path += [str(path) for path in PEERS.glob("lib/python*/site-packages")]
    names = {"input_names": ["x"], "output_names": ["y"]}
    torch.onnx.export(module, (x,), str(target / "model.onnx"), dynamo=False, opset_version=17, **names)
    torch.jit.trace(module, (x,), strict=False, check_trace=False).save(str(target / "model.pt"))
    kind = "" if x.is_floating_point() else "i64"
    shape = f"inputshape=[{','.join(map(str, x.shape))}]{kind}"
    for converter in PEERS.glob("lib/python*/site-packages/pnnx/pnnx"):
        subprocess.run([converter, "model.pt", shape, "fp16=0"], cwd=target, check=True)


if __name__ == "__main__":
    for given in sys.argv[1:]:
        export(given)
