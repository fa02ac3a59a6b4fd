"""Make the files in `seeds/`: small programs from stock ExecuTorch, for the mutator to start from.

They are committed, so that a seed number means the same mutant on every machine. Run this again only when
the exporter writes something new:  python -m tests.hostile.export_seeds
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tests.llm.tiny_models import LLAMA, write_gguf
from tests.support.export import export, vulkan_partitioner

SEEDS = Path(__file__).parent / "seeds"


class Call(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


class Counter(nn.Module):
    """Changes a buffer in every call."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total.add_(x.sum(0))
        return self.total * x


class Block(nn.Module):
    """Norm, attention and a feed-forward layer."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.mix = nn.Linear(8, 24)
        self.out = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.mix(self.norm(x)).split(8, dim=-1)
        scores = functional.softmax(q @ k.transpose(1, 2) / 3, -1)
        return x + functional.gelu(self.out(scores @ v))


def images(x: torch.Tensor) -> torch.Tensor:
    y = functional.max_pool2d(functional.pad(x, (1, 1, 1, 1), value=0.5), 2)
    return functional.interpolate(y, scale_factor=2.0, mode="nearest").mean((2, 3), keepdim=True)


def views(x: torch.Tensor) -> torch.Tensor:
    rows = x.shape[0]
    y = x.view(rows, 2, 3).permute(2, 0, 1)[1:, :, :1].reshape(rows * 2)
    return torch.cat([y, y.flip(0)]).unsqueeze(0).expand(3, 4 * rows)


def indices(x: torch.Tensor, at: torch.Tensor) -> tuple[torch.Tensor, ...]:
    picked = x.index_select(0, at)
    gathered = torch.gather(x, 1, at.unsqueeze(0).clamp(0, 2))
    return picked, gathered, x.scatter(0, at.unsqueeze(1), 2.0), torch.topk(x, 2).values, x[at, at]


def statistics(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return x.sum(-1), x.mean(0, keepdim=True), x.var(1), x.amax(1), x.argmin(1), x.cumsum(0), x.any()


def branch(x: torch.Tensor, flag: torch.Tensor) -> torch.Tensor:
    return torch.cond(flag, lambda x: x * 2 + 1, lambda x: torch.exp(x) - 3, (x,)) + 1


def decided_by_size(x: torch.Tensor) -> torch.Tensor:
    return torch.cond(x.shape[0] > 3, lambda x: x * 2 + 1, lambda x: torch.exp(x) - 3, (x,)) + 1


def loop(x: torch.Tensor) -> torch.Tensor:
    from torch._higher_order_ops.map import map as torch_map

    return torch_map(lambda row: row * 2 + 1, x)


def scalars(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    z = torch.where(x > 0.5, x * 2, y.clamp(-1, 1)) ** 2
    return functional.leaky_relu(torch.div(z, 3, rounding_mode="floor") - y % 2, 0.1).to(torch.int32)


N = torch.export.Dim("n", min=2, max=8)
ROWS = ({0: N},)
PROGRAMS: dict[str, tuple[nn.Module, tuple[Any, ...], Any]] = {
    "block": (Block(), (torch.randn(2, 5, 8),), None),
    "branch": (Call(branch), (torch.randn(4, 3), torch.tensor(True)), None),
    "counter": (Counter(), (torch.randn(6, 4),), ROWS),
    "images": (Call(images), (torch.randn(1, 2, 6, 6),), None),
    "indices": (Call(indices), (torch.randn(4, 5), torch.tensor([0, 2, 1])), None),
    "scalars": (Call(scalars), (torch.randn(6, 4), torch.randn(6, 4)), ({0: N}, {0: N})),
    "size_branch": (Call(decided_by_size), (torch.randn(6, 3),), ROWS),
    "loop": (Call(loop), (torch.randn(4, 3),), None),
    "statistics": (Call(statistics), (torch.randn(6, 4),), ROWS),
    "views": (Call(views), (torch.randn(6, 6),), ROWS),
}


def main() -> None:
    torch.manual_seed(0)
    SEEDS.mkdir(exist_ok=True)
    for name, (module, args, dims) in PROGRAMS.items():
        shapes = (dims,) if isinstance(module, Call) and dims is not None else dims
        for kind, delegated in (("vulkan", True), ("portable", False)):
            try:
                data = export(module, args, shapes, partitioner=delegated)
            except Exception as error:  # the exporter cannot delegate every program
                print(f"{name}.{kind}: {type(error).__name__}: {str(error)[:100]}")
                continue
            (SEEDS / f"{name}.{kind}.pte").write_bytes(data)
            print(f"{name}.{kind}: {len(data)} bytes")
    separate_weights()
    language_model()
    for_xnnpack()


def for_xnnpack() -> None:
    """Kinds of nodes that the other programs for XNNPACK do not have."""
    from tests.programs import test_xnnpack as xnnpack

    torch.manual_seed(0)
    pair = torch.randn(9, 6), torch.randn(9, 6)
    image = torch.randn(4, 3, 5, 7).to(memory_format=torch.channels_last)
    made = {
        "elementwise": xnnpack.lower(xnnpack.Elementwise().eval(), pair, ({0: xnnpack.ROWS},) * 2),
        "four_bits": xnnpack.groups_of_four_bits(torch.randn(9, 64)),
        "pools": xnnpack.argmax_pools(image, torch.export.Dim("images", min=2, max=4)),
    }
    for name, data in made.items():
        (SEEDS / f"{name}.xnnpack.pte").write_bytes(data)


def separate_weights() -> None:
    """A program whose weights lie in a `.ptd` file."""
    from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower

    torch.manual_seed(0)
    exported = torch.export.export(nn.Linear(6, 4).eval(), (torch.randn(2, 6),))
    for kind, partitioner in (("portable", None), ("vulkan", [vulkan_partitioner()])):
        edge = to_edge_transform_and_lower(exported, partitioner=partitioner)
        made = edge.to_executorch(ExecutorchBackendConfig(external_constants=True))
        (SEEDS / f"weights.{kind}.pte").write_bytes(made.buffer)
        for data in made._tensor_data.values():
            (SEEDS / f"weights.{kind}.ptd").write_bytes(bytes(data))


def language_model() -> None:
    """A model of one layer, its weights in several types."""
    import gguf

    tiny = replace(LLAMA, layers=1, width=32, hidden=32, heads=2, kv_heads=1)
    kinds = [getattr(gguf.GGMLQuantizationType, name) for name in ("Q8_0", "Q4_0", "F16", "Q5_1")]
    plain = SEEDS / "plain.gguf"
    write_gguf(plain, tiny)
    reader = gguf.GGUFReader(plain)
    writer = gguf.GGUFWriter(SEEDS / "tiny.gguf", "llama")
    for name, field in reader.fields.items():
        if not name.startswith("GGUF.") and name != "general.architecture":
            sub_type = field.types[-1] if len(field.types) > 1 else None
            writer.add_key_value(name, field.contents(), field.types[0], sub_type)
    for number, tensor in enumerate(reader.tensors):
        if tensor.data.ndim == 1:
            writer.add_tensor(tensor.name, tensor.data)
        else:
            kind = kinds[number % len(kinds)]
            writer.add_tensor(tensor.name, gguf.quantize(tensor.data, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    plain.unlink()


if __name__ == "__main__":
    main()
