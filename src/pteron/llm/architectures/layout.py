"""Which tensors a model must have, which it may have, and their shapes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pteron.errors import UnsupportedError
from pteron.llm.architectures.config import Config, Experts
from pteron.llm.architectures.tensors import Tensors

# A tensor's name and shape, and whether it must be there.
Expected = tuple[str, tuple[int, ...], bool]

# Tensors that give rotary frequencies, and therefore are in a Config already.
ROTARY_TENSORS = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")


def check_tensors(tensors: Tensors, layout: Iterable[Expected]) -> None:
    """Refuse a model in which a tensor is missing, misshapen, unreadable, or has no place."""
    expected: set[str] = set(ROTARY_TENSORS)
    for name, shape, required in layout:
        if required or name in tensors:
            tensors.expect(name, shape)
            expected.add(name)
    surplus = sorted(set(tensors.tensor_names) - expected)
    if surplus:
        # It would silently be missing from the converted model.
        raise UnsupportedError(
            f"{tensors.name}: {len(surplus)} tensors have no known place: {', '.join(surplus[:5])}"
        )


def decoder_layout(config: Config) -> Iterator[Expected]:
    family = config.architecture
    yield "token_embd.weight", (config.vocabulary, config.width), True
    yield "output.weight", (config.vocabulary, config.width), False
    yield "output.bias", (config.vocabulary,), False
    if family.learned_positions:
        yield "position_embd.weight", (config.context, config.width), True
    yield from _norm(config, "output_norm", config.width)
    for number in range(len(config.layers)):
        block = f"blk.{number}."
        for norm in family.norms:
            yield from _norm(config, block + norm, config.width)
        for norm in family.optional_norms:
            yield from _norm(config, block + norm, config.width, required=False)
        if family.head_norm != "none":
            each = family.head_norm == "head"
            yield f"{block}attn_q_norm.weight", (config.head_size if each else config.queries,), True
            yield f"{block}attn_k_norm.weight", (config.head_size if each else config.keys,), True
        for name, shape in _linears(config).items():
            yield f"{block}{name}.weight", shape, True
            yield f"{block}{name}.bias", shape[:1], False


def _norm(config: Config, name: str, width: int, required: bool = True) -> Iterator[Expected]:
    yield f"{name}.weight", (width,), required
    if config.architecture.norm == "layer":
        yield f"{name}.bias", (width,), False


def _linears(config: Config) -> dict[str, tuple[int, ...]]:
    width = config.width
    linears = _mlp(config) if config.experts is None else _mixture(width, config.experts)
    return {**_projections(config), "attn_output": (width, config.queries), **linears}


def _projections(config: Config) -> dict[str, tuple[int, ...]]:
    if config.architecture.fused_qkv:
        return {"attn_qkv": (config.queries + 2 * config.keys, config.width)}
    return {
        "attn_q": (config.queries, config.width),
        "attn_k": (config.keys, config.width),
        "attn_v": (config.keys, config.width),
    }


def _mlp(config: Config) -> dict[str, tuple[int, ...]]:
    family, width, hidden = config.architecture, config.width, config.hidden
    up = {"ffn_up": (2 * hidden if family.fused_gate_up else hidden, width)}
    gate = {"ffn_gate": (hidden, width)} if family.is_gated and not family.fused_gate_up else {}
    return {**gate, **up, "ffn_down": (width, hidden)}


def _mixture(width: int, experts: Experts) -> dict[str, tuple[int, ...]]:
    count, hidden, shared = experts.count, experts.hidden, experts.shared_hidden
    linears: dict[str, tuple[int, ...]] = {
        "ffn_gate_inp": (count, width),
        "ffn_gate_exps": (count, hidden, width),
        "ffn_up_exps": (count, hidden, width),
        "ffn_down_exps": (count, width, hidden),
    }
    if shared:
        linears |= {
            "ffn_gate_inp_shexp": (width,),
            "ffn_gate_shexp": (shared, width),
            "ffn_up_shexp": (shared, width),
            "ffn_down_shexp": (width, shared),
        }
    return linears
