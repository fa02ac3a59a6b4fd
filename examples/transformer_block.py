"""One graph for prefill and for every decode step.

Exports a small llama-like model (4-bit linears, rotary embedding, attention with a KV cache) once, at its
largest sequence length, with stock ExecuTorch. Then runs a prompt and several single tokens through the one
loaded program, and compares every result with torch.

    python examples/transformer_block.py
"""

# ruff: noqa: E402  the exporter's imports are silenced before they happen

from __future__ import annotations

import contextlib
import logging
import os
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

logging.disable(logging.WARNING)  # warnings of the exporter's imports
warnings.simplefilter("ignore")

import torch
from executorch.extension.llm.custom_ops import custom_ops  # noqa: F401  registers torch.ops.llama
from rich.console import Console
from rich.table import Table
from torch import nn
from torchao.quantization.granularity import PerGroup
from torchao.quantization.quant_api import IntxWeightOnlyConfig, quantize_

import pteron

VOCABULARY, WIDTH, HEADS, KV_HEADS, HEAD, HIDDEN, LAYERS = 256, 128, 8, 2, 16, 256, 2
MAX_LENGTH, MAX_CONTEXT = 64, 256


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q = nn.Linear(WIDTH, HEADS * HEAD, bias=False)
        self.k = nn.Linear(WIDTH, KV_HEADS * HEAD, bias=False)
        self.v = nn.Linear(WIDTH, KV_HEADS * HEAD, bias=False)
        self.o = nn.Linear(HEADS * HEAD, WIDTH, bias=False)
        self.register_buffer("k_cache", torch.zeros(1, MAX_CONTEXT, KV_HEADS, HEAD))
        self.register_buffer("v_cache", torch.zeros(1, MAX_CONTEXT, KV_HEADS, HEAD))

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, position: int) -> torch.Tensor:
        length = x.shape[1]
        q = self.q(x).view(1, length, HEADS, HEAD)
        k = self.k(x).view(1, length, KV_HEADS, HEAD)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        v = self.v(x).view(1, length, KV_HEADS, HEAD)
        y = torch.ops.llama.sdpa_with_kv_cache(
            q, k, v, self.k_cache, self.v_cache, position, length, None, 0.0, True, None
        )
        return self.o(y.reshape(1, length, HEADS * HEAD))


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    half = x.shape[-1] // 2
    swapped = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return x * cos.unsqueeze(1) + swapped * sin.unsqueeze(1)


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = Attention()
        self.gate = nn.Linear(WIDTH, HIDDEN, bias=False)
        self.up = nn.Linear(WIDTH, HIDDEN, bias=False)
        self.down = nn.Linear(HIDDEN, WIDTH, bias=False)
        self.norm1 = nn.Parameter(torch.ones(WIDTH))
        self.norm2 = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, position: int) -> torch.Tensor:
        x = x + self.attention(rms_norm(x, self.norm1), cos, sin, position)
        h = rms_norm(x, self.norm2)
        return x + self.down(torch.nn.functional.silu(self.gate(h)) * self.up(h))


def rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * weight


class TinyLlama(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = nn.Parameter(torch.ones(WIDTH))
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        angles = torch.outer(torch.arange(MAX_CONTEXT), 10000.0 ** -(torch.arange(0, HEAD, 2) / HEAD))
        self.register_buffer("cos", torch.cat([angles, angles], dim=-1).cos())
        self.register_buffer("sin", torch.cat([angles, angles], dim=-1).sin())

    def forward(self, tokens: torch.Tensor, input_pos: torch.Tensor) -> torch.Tensor:
        position = input_pos[0].item()
        torch._check_is_size(position)
        length = tokens.shape[1]
        torch._check(position + length <= MAX_CONTEXT)
        cos, sin = self.cos.narrow(0, position, length), self.sin.narrow(0, position, length)
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, cos, sin, position)
        return self.head(rms_norm(x, self.norm))


def export(model: nn.Module) -> bytes:
    length = torch.export.Dim("length", min=1, max=MAX_LENGTH)
    example = (torch.zeros(1, MAX_LENGTH, dtype=torch.long), torch.zeros(1, dtype=torch.long))
    return pteron.export(model, example, dynamic_shapes=({1: length}, None)).buffer


@contextlib.contextmanager
def quiet_stderr() -> Iterator[None]:
    """ExecuTorch's native attention, which torch calls for the comparison, logs on every call."""
    saved = os.dup(2)
    with Path(os.devnull).open("w") as sink:
        os.dup2(sink.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(saved, 2)
            os.close(saved)


def main() -> None:
    console = Console()
    torch.manual_seed(0)
    model = TinyLlama().eval()
    quantize_(model, IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(32)))
    with console.status("exporting with ExecuTorch"), torch.no_grad(), quiet_stderr():
        data = export(model)
    for layer in model.layers:
        layer.attention.k_cache.zero_()
        layer.attention.v_cache.zero_()
    with console.status("loading"):
        program = pteron.load(data)
        method = program.method("forward")
    console.print(f"{len(data):,} bytes on [bold]{program.device.adapter}[/]")
    nodes, nbytes = len(method.graph.nodes), method.memory.total
    console.print(f"{nodes} nodes, {nbytes:,} bytes of GPU memory, one graph\n")

    table = Table("step", "live S", "position", "ms", "allocations", "compilations", "max error")
    allocations, compilations = program.device.allocations, program.device.compilations
    worst, position = 0.0, 0
    for length in (37, 1, 1, 1, 16, 1, 64, 1):
        tokens = torch.randint(0, VOCABULARY, (1, length))
        start = time.perf_counter()
        got = method(tokens, torch.tensor([position]))
        elapsed = 1000 * (time.perf_counter() - start)
        with torch.no_grad(), quiet_stderr():
            want = model(tokens, torch.tensor([position]))
        error = float((got - want).abs().max())
        worst = max(worst, error)
        table.add_row(
            "decode" if length == 1 else "prefill",
            str(length),
            str(position),
            f"{elapsed:.1f}",
            str(program.device.allocations - allocations),
            str(program.device.compilations - compilations),
            f"{error:.1e}",
        )
        position += length
    console.print(table)
    program.close()
    if worst > 1e-3:
        raise SystemExit(f"the results differ from torch's by {worst:.1e}")
    console.print("[green]All results are equal to torch's.[/]")


if __name__ == "__main__":
    main()
