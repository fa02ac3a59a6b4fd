"""Two small networks: linear layers, and convolutions."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.zoo.model import Model


def multilayer_perceptron() -> nn.Module:
    return nn.Sequential(
        nn.Linear(10, 24), nn.ReLU(), nn.Linear(24, 18), nn.GELU(), nn.Linear(18, 7), nn.Softmax(-1)
    )


class ConvNet(nn.Module):
    """Convolutions with batch norm, one depthwise-separable, then pooled to a vector."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU6()
        )
        self.depthwise = nn.Sequential(
            nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.BatchNorm2d(8), nn.Hardswish()
        )
        self.pointwise = nn.Sequential(nn.Conv2d(8, 12, 1), nn.BatchNorm2d(12), nn.SiLU())
        self.head = nn.Linear(12, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = self.pointwise(x + self.depthwise(x))
        x = functional.max_pool2d(x, 2)
        return self.head(x.mean((2, 3)))


def conv_net() -> nn.Module:
    """A conv net whose batch norms have statistics other than 0 and 1."""
    model = ConvNet().train()
    with torch.no_grad():
        for _ in range(3):
            model(torch.randn(4, 3, 16, 16) * 2 + 1)
    return model


NETWORKS = {
    "mlp": Model("mlp", "", multilayer_perceptron, lambda n: (torch.randn(n, 10),), (0,), (9, 1, 4, 7, 2)),
    "conv net": Model("conv net", "", conv_net, lambda n: (torch.randn(n, 3, 16, 16),), (0,), (5, 1, 3, 2)),
}
