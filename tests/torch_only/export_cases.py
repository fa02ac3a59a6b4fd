"""Modules to export, each with its inputs at any length and its options."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim
from torch.nn.functional import scaled_dot_product_attention

import pteron
from pteron.tools.exporter import Export

WIDTH, LONGEST = 64, 24
LENGTH = Dim("length", min=1, max=LONGEST)


class Mlp(nn.Module):
    """A layer that can be quantised, one whose outputs are not a multiple, and one whose inputs are not."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, 90)
        self.down = nn.Linear(90, WIDTH)
        self.head = nn.Linear(WIDTH, 12)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.dropout(self.down(nn.functional.gelu(self.up(x)))))


class Attention(nn.Module):
    """Attention in all forms of torch."""

    def __init__(self) -> None:
        super().__init__()
        self.q = nn.Linear(WIDTH, WIDTH)
        self.kv = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor, added: Tensor, shown: Tensor) -> tuple[Tensor, ...]:
        q = self.q(x).unflatten(-1, (4, 16)).transpose(1, 2)
        k, v = self.kv(x).unflatten(-1, (4, 16)).transpose(1, 2).chunk(2, dim=1)
        full = {"enable_gqa": True}
        return (
            scaled_dot_product_attention(q, q, q),
            scaled_dot_product_attention(q, k, v, is_causal=True, **full),
            scaled_dot_product_attention(q, k, v, attn_mask=added, scale=0.3, **full),
            scaled_dot_product_attention(q, k, v, attn_mask=shown, **full),
        )


class Language(nn.Module):
    """An embedding that is also the head."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(52, WIDTH)
        self.head = nn.Linear(WIDTH, 52, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(torch.tanh(self.embedding(tokens)))


class TransformerLayer(nn.TransformerEncoderLayer):
    """With torch's attention module, which does not accept quantised weights."""

    def __init__(self) -> None:
        super().__init__(WIDTH, 4, 2 * WIDTH, batch_first=True)


class Leftovers(nn.Module):
    """`any` is not supported in the delegate."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.linear(x)
        return y, (y > 2).any(-1)


class JoinedHeads(nn.Module):
    """Attention whose heads are joined by a view: ExecuTorch's attention returns them in another order."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.weight = nn.Parameter(torch.randn(WIDTH, 20) / 8)
        self.bias = nn.Parameter(torch.randn(20))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (y.unflatten(-1, (4, 16)).transpose(1, 2) for y in self.qkv(x).chunk(3, dim=-1))
        y = scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        return torch.addmm(self.bias, y.view(-1, WIDTH), self.weight)


class KeptTwice(nn.Module):
    """A buffer that is written through a second reference, as in transformers' static caches."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(WIDTH), persistent=False)
        self.register_buffer("count", torch.ones(()))
        self.kept = [self.total, self.count]

    def forward(self, x: Tensor) -> Tensor:
        total, count = self.kept
        count.add_(1)
        return total.add_(x.mean((0, 1))) / count


class Counters(nn.Module):
    """Buffers with contents: read before and after they are written, and returned."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.tensor([5.0]))
        self.register_buffer("steps", torch.tensor(7))
        self.register_buffer("total", torch.arange(float(WIDTH)))
        self.register_buffer("twice", torch.zeros(WIDTH))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        x = x[0, -1]
        before = self.total.clone()
        self.total.add_(x)
        self.twice.add_(2 * self.total)
        self.calls.add_(1)
        self.steps.add_(2)
        return (
            self.calls * x,
            self.calls.clone(),
            before,
            self.total.cumsum(0),
            self.twice + 1,
            self.steps * 3,
        )


class OddHeads(nn.Module):
    """Heads of 6 elements, which the delegate's attention does not support."""

    def forward(self, x: Tensor) -> Tensor:
        return scaled_dot_product_attention(x, x, x, is_causal=True)


def masks(length: int) -> tuple[Tensor, Tensor]:
    """A mask that is added and a boolean mask, each with a row that hides all keys."""
    added = torch.randn(length, length).masked_fill(torch.rand(length, length) < 0.3, -torch.inf)
    shown = torch.rand(2, 1, length, length) < 0.7
    added[length // 2], shown[:, :, length // 3] = -torch.inf, False
    return added, shown


def tokens(length: int) -> tuple[Tensor]:
    return (torch.randint(0, 52, (1, length)),)


def rows(length: int) -> tuple[Tensor]:
    return (torch.randn(2, length, WIDTH),)


def rows_and_masks(length: int) -> tuple[Tensor, ...]:
    return (*rows(length), *masks(length))


def heads(length: int) -> tuple[Tensor]:
    return (torch.randn(1, 2, length, 6),)


DYNAMIC = ({1: LENGTH},)
CASES: dict[str, tuple[type[nn.Module], Callable[[int], tuple[Tensor, ...]], Any, dict[str, Any]]] = {
    "mlp": (Mlp, rows, DYNAMIC, {}),
    "mlp, 4 bits": (Mlp, rows, DYNAMIC, {"quantize": "4bit"}),
    "mlp, not delegated": (Mlp, rows, DYNAMIC, {"partition": False}),
    "attention": (
        Attention,
        rows_and_masks,
        ({1: LENGTH}, {0: LENGTH, 1: LENGTH}, {2: LENGTH, 3: LENGTH}),
        {"quantize": "4bit", "group_size": 16},
    ),
    "attention, not delegated": (
        Attention,
        rows_and_masks,
        ({1: LENGTH}, {0: LENGTH, 1: LENGTH}, {2: LENGTH, 3: LENGTH}),
        {"partition": False},
    ),
    "language, 4 bits": (Language, tokens, DYNAMIC, {"quantize": "4bit"}),
    "mlp, 8 bits": (Mlp, rows, DYNAMIC, {"quantize": "8bit"}),
    "language, 4 bits, affine": (Language, tokens, DYNAMIC, {"quantize": "4bit", "symmetric": False}),
    "transformer layer, 8 bits, affine": (
        TransformerLayer,
        rows,
        DYNAMIC,
        {"quantize": "8bit", "symmetric": False},
    ),
    "transformer layer, 4 bits": (TransformerLayer, rows, DYNAMIC, {"quantize": "4bit"}),
    "joined heads": (JoinedHeads, rows, DYNAMIC, {}),
    "joined heads, not delegated": (JoinedHeads, rows, DYNAMIC, {"partition": False}),
    "buffers kept twice": (KeptTwice, rows, DYNAMIC, {}),
    "buffers with contents": (Counters, rows, DYNAMIC, {}),
    "buffers with contents, not delegated": (Counters, rows, DYNAMIC, {"partition": False}),
    "leftovers": (Leftovers, rows, DYNAMIC, {}),
    "odd heads": (OddHeads, heads, ({2: LENGTH},), {}),
}


def module_of(name: str) -> nn.Module:
    torch.manual_seed(0)
    return CASES[name][0]()


def example_of(name: str) -> tuple[Tensor, ...]:
    torch.manual_seed(1)
    return CASES[name][1](LONGEST)


@functools.cache
def exported(name: str) -> Export:
    """Every program is exported once."""
    _, _, dynamic_shapes, options = CASES[name]
    return pteron.export(module_of(name), example_of(name), dynamic_shapes=dynamic_shapes, **options)


def reference(name: str) -> nn.Module:
    """The module in torch, with quantised weights if the program has them."""
    module, options = module_of(name).eval(), CASES[name][3]
    if "quantize" not in options:
        return module
    size, bits = options.get("group_size", 32), options["quantize"]
    symmetric = options.get("symmetric", True)

    def divides(part: nn.Module, _: str = "") -> bool:
        if type(part) not in (nn.Linear, nn.Embedding):  # attention has a kind of linear of its own
            return False
        rows, width = part.weight.shape
        return (bits == "8bit" or not symmetric or rows % 4 == 0) and width % size == 0

    torch.backends.mha.set_fastpath_enabled(False)  # it takes no quantised weights
    if bits == "4bit" and not symmetric:
        _round_affine(filter(divides, module.modules()), size)
        return module
    from torchao.quantization.granularity import PerGroup
    from torchao.quantization.quant_api import IntxWeightOnlyConfig, quantize_
    from torchao.quantization.quant_primitives import MappingType

    dtype = torch.int8 if bits == "8bit" else torch.int4
    mapping = MappingType.SYMMETRIC if symmetric else MappingType.ASYMMETRIC
    config = IntxWeightOnlyConfig(weight_dtype=dtype, granularity=PerGroup(size), mapping_type=mapping)
    quantize_(module, config, divides)
    return module


def _round_affine(layers: Iterable[nn.Module], group_size: int) -> None:
    """Round the weights of layers to 16 steps from the smallest to the largest of each group."""
    for weight in {id(layer.weight): layer.weight for layer in layers}.values():
        groups = weight.data.unflatten(-1, (-1, group_size))
        low = groups.amin(-1, keepdim=True).half().float()
        step = ((groups.amax(-1, keepdim=True) - groups.amin(-1, keepdim=True)) / 15).half().float()
        weight.data = (((groups - low) / step).round().clamp(0, 15) * step + low).flatten(-2)


FACTORY = """
import torch
from neighbour import WIDTH

def make():
    module = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU())
    return module, (torch.zeros(4, WIDTH),), ({0: torch.export.Dim("n", min=1, max=4)},)

def wrong():
    return 7
"""


def write_factory(folder: Path) -> Path:
    """Write a Python file with functions for `pteron export`."""
    (folder / "neighbour.py").write_text("WIDTH = 32")
    path = folder / "json.py"  # a name that is taken
    path.write_text(FACTORY)
    return path
