"""A program with equal blocks, a dynamic length, a mask and a position."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.export import export

BLOCKS, WIDTH, LONGEST = 6, 32, 24


def blocks() -> Any:
    """Blocks of a norm, a gated unit and a residual sum. The mask has the length of x."""
    import torch

    class Block(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = torch.nn.LayerNorm(WIDTH)
            self.up = torch.nn.Linear(WIDTH, 2 * WIDTH)
            self.down = torch.nn.Linear(2 * WIDTH, WIDTH)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = torch.nn.Sequential(*(Block() for _ in range(BLOCKS)))

        def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            return torch.softmax(self.blocks(x) * mask, -1)

    torch.manual_seed(0)
    return Model().eval()


def write(folder: Path) -> None:
    import torch

    length = torch.export.Dim("length", min=1, max=LONGEST)
    args = (torch.randn(1, LONGEST, WIDTH), torch.ones(1, LONGEST, 1))
    dims = {1: length}
    (folder / "blocks.pte").write_bytes(export(blocks(), args, (dims, dims)))
