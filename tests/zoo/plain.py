"""Small networks of torch's own layers, for kinds of models that the libraries do not have."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate, log_softmax

from tests.zoo.audio import noise
from tests.zoo.model import BATCH, Inputs, Model, image


def models() -> Iterator[Model]:
    yield plain("style transfer", style_transfer, image(32))
    yield plain("nearest prototypes", Prototypes, noise(12))
    yield plain("pairwise distances", Distances, noise(12))
    for mode in ("bilinear", "bicubic"):
        yield plain(f"antialiased {mode}", functools.partial(Resampling, mode, True), image(32))
        yield plain(mode, functools.partial(Resampling, mode, False), image(32))
    yield plain("LSTM", lambda: nn.LSTM(12, 16, batch_first=True), noise(6, 12))
    yield plain("GRU", lambda: nn.GRU(12, 16, batch_first=True), noise(6, 12))
    yield plain("TransformerEncoder", transformer, noise(6, 16))
    yield plain("3d convolutions", volumes, noise(3, 8, 8, 8))


def plain(name: str, make: Callable[[], nn.Module], inputs: Callable[[int], Inputs]) -> Model:
    return Model(f"torch/{name}", "torch", make, inputs, (0,), BATCH)


def style_transfer() -> nn.Module:
    """Fast style transfer: convolutions with instance norms, down, a residual layer, and up again."""

    def layer(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
        padding = nn.ReflectionPad2d(1)
        norm = nn.InstanceNorm2d(outputs, affine=True)
        return nn.Sequential(padding, nn.Conv2d(inputs, outputs, 3, stride), norm, nn.ReLU())

    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(layer(16, 16), nn.Conv2d(16, 16, 3, padding=1), nn.InstanceNorm2d(16))

        def forward(self, x: Tensor) -> Tensor:
            result: Tensor = x + self.layers(x)
            return result

    up = nn.Upsample(scale_factor=2, mode="nearest")
    return nn.Sequential(
        layer(3, 8), layer(8, 16, stride=2), Residual(), up, layer(16, 8), nn.Conv2d(8, 3, 3, padding=1)
    )


class Prototypes(nn.Module):
    """The distances to learned points, as in a network for few examples."""

    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 8))
        self.points = nn.Parameter(torch.randn(5, 8))

    def forward(self, x: Tensor) -> Tensor:
        return log_softmax(-torch.cdist(self.encode(x), self.points), dim=-1)


class Distances(nn.Module):
    """The distances between the rows of the first input."""

    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Linear(12, 8)

    def forward(self, x: Tensor) -> Tensor:
        return torch.pdist(self.encode(x))


class Resampling(nn.Module):
    """An image pyramid: half the size, and back to the full size."""

    def __init__(self, mode: str, antialias: bool) -> None:
        super().__init__()
        self.mode, self.antialias = mode, antialias
        self.mix = nn.Conv2d(3, 4, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        small = interpolate(x, size=(14, 18), mode=self.mode, antialias=self.antialias)
        return interpolate(self.mix(small), size=(32, 32), mode=self.mode)


def transformer() -> nn.Module:
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), 1)


def volumes() -> nn.Module:
    return nn.Sequential(nn.Conv3d(3, 8, 3, padding=1), nn.BatchNorm3d(8), nn.ReLU(), nn.MaxPool3d(2))
