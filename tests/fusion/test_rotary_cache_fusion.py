"""A rotary embedding fused with the attention after it: fewer dispatches, the same results and errors."""

from __future__ import annotations

import functools
from collections.abc import Callable
from itertools import starmap
from typing import Any

import pytest
import torch
from torch import nn

import pteron
from pteron.compiler.ir.dtypes import DType
from pteron.compiler.ir.values import Graph, SymInt
from pteron.compiler.ir.work import Cost, cost
from pteron.compiler.passes import PASSES, fuse
from pteron.engine.devices.opening import Device
from pteron.errors import InputError
from tests.support.calls import Call, check_calls
from tests.support.rules import OneNode, Sym, inputs_of
from tests.support.sketch import Sketch, live

WIDTH, HEADS, SHARED, HEAD = 32, 6, 2, 16
MAX_LENGTH, CONTEXT = 12, 40
FUSED = "pteron.rotary_sdpa_with_kv_cache"
OTHERS = tuple(name for name in PASSES if name != "rotary_cache")
STEPS = ((12, 0), (1, 12), (1, 13), (5, 14), (12, 19), (3, 2), (1, 39))  # lengths, and where they begin


# -- exported programs --------------------------------------------------------------------------------


class Attention(nn.Module):
    """Two layers, each with its caches. `turned` None: neighbours are rotated, with a part of the tables."""

    def __init__(self, turned: int | None) -> None:
        super().__init__()
        from executorch.backends.vulkan import custom_ops_lib  # noqa: F401  registers torch.ops.et_vk
        from executorch.extension.llm.custom_ops import custom_ops  # noqa: F401  and torch.ops.llama

        torch.manual_seed(turned or 0)
        self.turned = turned
        sizes = (HEADS * HEAD, SHARED * HEAD, SHARED * HEAD)
        self.inward = nn.ModuleList(nn.Linear(WIDTH, n) for n in 2 * sizes)
        self.outward = nn.ModuleList(nn.Linear(HEADS * HEAD, WIDTH) for _ in range(2))
        angles = torch.randn(CONTEXT, turned or HEAD // 2)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())
        for name in ("k0", "v0", "k1", "v1"):
            self.register_buffer(name, torch.zeros(1, CONTEXT, SHARED, HEAD))

    def forward(self, x: torch.Tensor, input_pos: torch.Tensor) -> torch.Tensor:
        position, length = input_pos[0].item(), x.shape[1]
        torch._check_is_size(position)
        torch._check(position + length <= CONTEXT)
        for layer in range(2):
            q, k, v = (f(x).view(1, length, -1, HEAD) for f in self.inward[3 * layer : 3 * layer + 3])
            if self.turned is None:
                cos, sin = (t.narrow(0, position, length) for t in (self.cos, self.sin))
                q, k = torch.ops.et_vk.apply_rotary_emb.default(q, k, cos, sin)
            else:
                q, k = torch.ops.et_vk.apply_rotary_emb_hf.default(q, k, self.cos, self.sin, position)
            caches = getattr(self, f"k{layer}"), getattr(self, f"v{layer}")
            y = torch.ops.llama.sdpa_with_kv_cache(q, k, v, *caches, position, length, None, 0.0, True, None)
            x = x + self.outward[layer](y.view(1, length, HEADS * HEAD))
        return x


TURNED = [None, 16, 8, 4]  # neighbours, halves of whole heads, halves of a part, and halves within a quad


@pytest.fixture(params=TURNED, ids=lambda turned: f"turned {turned}")
def turned(request: pytest.FixtureRequest) -> int | None:
    found: int | None = request.param
    return found


@pytest.fixture
def program(exported: Callable[..., bytes], turned: int | None) -> bytes:
    def arguments() -> tuple[Any, ...]:
        length = torch.export.Dim("length", min=1, max=MAX_LENGTH)
        example = torch.zeros(1, MAX_LENGTH, WIDTH), torch.zeros(1, dtype=torch.long)
        return Attention(turned), example, ({1: length}, None)

    return exported(f"rotary_cache_{turned}", arguments)


@functools.cache
def answers(turned: int | None) -> list[tuple[torch.Tensor, int, torch.Tensor]]:
    """The results of torch for a conversation, step by step."""
    model, found = Attention(turned), []
    with torch.no_grad():
        for length, position in STEPS:
            x = torch.randn(1, length, WIDTH)
            found.append((x, position, model(x, torch.tensor([position]))))
    return found


@pytest.mark.parametrize("passes", [None, OTHERS, ("rotary_cache",)], ids=["all", "without", "alone"])
def test_every_step_of_a_conversation_equals_torch(
    program: bytes, turned: int | None, device: Device, passes: Any
) -> None:
    with pteron.load(program, device=device, fuse=passes) as loaded:
        method = loaded.method()
        names = [node.name for node in method.graph.nodes]
        assert names.count(FUSED) == (0 if passes == OTHERS else 2)
        assert names.count("sdpa_with_kv_cache.default") == (2 if passes == OTHERS else 0)
        calls = [Call([x, [position]], [want]) for x, position, want in answers(turned)]
        check_calls(method, calls, 1e-4, 1e-5)


@pytest.mark.parametrize("passes", [None, OTHERS], ids=["all", "without"])
def test_caches_of_float16(program: bytes, turned: int | None, device: Device, passes: Any) -> None:
    """Half of the memory; keys and values are rounded to float16 once, with fusion and without."""
    with pteron.load(program, device=device, fuse=passes, kv_dtype="f16") as loaded:
        method = loaded.method()
        assert method.new_state().nbytes == 4 * CONTEXT * SHARED * HEAD * 2
        calls = [Call([x, [position]], [want]) for x, position, want in answers(turned)]
        check_calls(method, calls, 2e-3, 2e-3)


def test_three_dispatches_fewer_for_each_layer(program: bytes, device: Device) -> None:
    def count(passes: Any) -> int:
        with (
            pteron.load(program, device=device, fuse=passes) as loaded,
            loaded.method().prepare(torch.zeros(1, 3, WIDTH), [0]) as call,
        ):
            return sum(len(step.kernels) for step in call.steps())

    assert count(OTHERS) - count(None) == 2 * 3


def test_errors_are_the_same_with_and_without_the_pass(
    program: bytes, turned: int | None, device: Device
) -> None:
    def refusal(passes: Any) -> str:
        with pteron.load(program, device=device, fuse=passes) as loaded:
            loaded.method()(torch.zeros(1, 3, WIDTH), [CONTEXT - 3])
            with pytest.raises(InputError) as refused:
                loaded.method()(torch.zeros(1, 3, WIDTH), [CONTEXT - 2])
            return str(refused.value).partition(": ")[2]

    assert refusal(None) == refusal(OTHERS)
    if turned is not None:
        assert "has 40 rows: position 38 plus 3 tokens is beyond its end" in refusal(None)


# -- the fused operator alone -------------------------------------------------------------------------


def turn_halves(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotate the first elements of x [B, S, H, D], as many as the tables have columns, in halves."""
    width = cos.shape[1]
    part, rest = x[..., :width].float(), x[..., width:]
    swapped = torch.cat([-part[..., width // 2 :], part[..., : width // 2]], -1)
    return torch.cat([(part * cos[:, None] + swapped * sin[:, None]).to(x.dtype), rest], -1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("width", [8, 12])
def test_each_batch_has_its_own_rows_in_the_caches(device: Device, width: int, dtype: torch.dtype) -> None:
    """The table row and the cache position are different here. Other rows of the caches do not change."""
    batch, capacity, shared, window = 3, 11, 2, 5
    angles = torch.randn(20, 8)

    def make(length: int, row: int, position: int) -> list[Any]:
        heads = (2 * shared, shared, shared)
        qkv = [torch.randn(batch, length, h, width).to(dtype) for h in heads]
        caches = [torch.randn(batch, capacity, shared, width).to(dtype) for _ in range(2)]
        tables = [angles.cos(), angles.sin()]
        return [*qkv, *tables, Sym(row), *caches, Sym(position), None, 0.0, True, None, window, None]

    largest = make(capacity, 0, 0)
    node = OneNode(device, FUSED, largest, [largest[0], largest[0]], True)

    def call(length: int, row: int, position: int) -> Call:
        args = make(length, row, position)
        q, k, v, cos, sin, _, keys, values = args[:8]
        rows = slice(row, row + length)
        turned = turn_halves(q, cos[rows], sin[rows])
        keys, values = keys.clone(), values.clone()
        keys[:, position : position + length] = turn_halves(k, cos[rows], sin[rows])
        values[:, position : position + length] = v
        seen = position + length
        behind = torch.arange(position, seen)[:, None] - torch.arange(seen)
        mask = (behind >= 0) & (behind < window)
        y = torch.nn.functional.scaled_dot_product_attention(
            *(x[:, :seen].transpose(1, 2).double() for x in (turned, keys, values)),
            attn_mask=mask,
            enable_gqa=True,
        )
        wanted = [turned, y.transpose(1, 2).to(dtype), keys, values]
        return Call(inputs_of(args), wanted, f"of {length} tokens, row {row}, position {position}")

    places = ((11, 9, 0), (1, 0, 10), (4, 3, 5), (2, 17, 0), (1, 19, 7))
    check_calls(node.method, starmap(call, places), 1e-4, 1e-5)
    with pytest.raises(InputError, match="position 8 plus 4 new tokens does not fit the cache of 11"):
        node(make(4, 0, 8))
    with pytest.raises(InputError, match="20 rows: position 18 plus 3 tokens is beyond its end"):
        node(make(3, 18, 0))
    node.close()


# -- where the pass keeps its hands off ---------------------------------------------------------------


def drawn(
    width: int = 8,
    cached: DType = DType.float32,
    rounded: DType = DType.float32,
    shown: str = "y",
    values: str = "apart",
    reader: str | None = None,
) -> Graph:
    """A graph of a rotary embedding and an attention."""
    s = Sketch()
    q, k, v = s.input(1, 4, 4, width), s.input(1, 4, 2, width), s.input(1, 4, 2, width)
    table, position = s.constant(16, 4), s.integer()
    turned_q, turned_k = (s.value(1, 4, heads, width, dtype=rounded) for heads in (4, 2))
    keys = s.constant(1, 16, 2, width, dtype=cached)
    caches = [keys, keys if values == "in one cache" else s.constant(1, 16, 2, width, dtype=cached)]
    s.graph.states = [*dict.fromkeys(caches)]
    s.node("et_vk.apply_rotary_emb_hf.default", [q, k, table, table, position, (turned_q, turned_k)], "")
    found = {"q": turned_q, "k": turned_k}
    if reader:
        found["read"] = s.add("aten.tanh.default", found[reader], shape=found[reader].max_shape)
    attended = [turned_q, turned_k, v, *caches, position, 4, None, 0.0, True, None]
    found["y"] = s.add("sdpa_with_kv_cache.default", *attended, shape=(1, 4, 4, width))
    return s.finish(*(found[name] for name in shown.split()))


def is_fused(graph: Graph) -> bool:
    return FUSED in [node.name for node in fuse(graph).nodes]


@pytest.mark.parametrize("cached", [DType.float32, DType.float16])
def test_rotary_and_attention_become_one_node(cached: DType) -> None:
    graph = drawn(cached=cached)
    assert is_fused(graph)
    (node,) = fuse(graph).nodes
    assert set(node.mutates) == set(graph.states)


def test_its_work_is_counted_as_that_of_attention() -> None:
    def costs(graph: Graph) -> list[Cost]:
        swept = live(graph)
        swept.sweep({p.value.id: 9 for p in graph.inputs if isinstance(p.value, SymInt)})
        return [cost(node, swept.current) for node in graph.nodes]

    rotary, attention = costs(drawn())
    (together,) = costs(fuse(drawn()))
    assert attention.flops == together.flops == 4 * 4 * 8 * (10 + 11 + 12 + 13)  # heads, width, visible keys
    queries, keys, table, caches = (
        4 * 4 * 8,
        4 * 2 * 8,
        4 * 4,
        2 * 13 * 2 * 8,
    )  # elements; 13 rows are visible
    assert rotary.nbytes == 4 * (2 * queries + 2 * keys + table)
    assert attention.nbytes == 4 * (2 * queries + 2 * keys + caches)
    # The rotated queries are written once more; the rotated keys go straight into their cache.
    assert together.nbytes == 4 * (3 * queries + 2 * keys + table + caches)


@pytest.mark.parametrize(
    "options",
    [
        {"width": 6},  # two tokens share a word of a cache
        {"rounded": DType.float16},  # keys are rounded on their way
        {"values": "in one cache"},
        {"shown": "y k"},
        {"shown": "y q"},
        {"shown": "y read", "reader": "k"},
        {"shown": "y read", "reader": "q"},
    ],
    ids=str,
)
def test_nodes_that_are_not_fused(options: dict[str, Any]) -> None:
    assert not is_fused(drawn(**options))
