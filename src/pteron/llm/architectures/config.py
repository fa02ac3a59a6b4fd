"""What one model is: its sizes, and what each of its layers does. Every source of models gives this."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf, isfinite

from pteron.errors import FormatError
from pteron.llm.architectures.architecture import Architecture


@dataclass(frozen=True, slots=True)
class Rotary:
    """A rotation of the first elements of a head, two for each frequency.

    Some models have other frequencies for a context that is longer than the one they began training with.
    """

    frequencies: tuple[float, ...] = field(repr=False)  # radians per position
    gain: float = 1.0  # cos and sin are multiplied by this
    longer: Rotary | None = None  # for contexts of more than `short_context` positions
    short_context: int = 0

    @property
    def size(self) -> int:
        """How many elements of a head are rotated."""
        return 2 * len(self.frequencies)

    def for_context(self, context: int) -> Rotary:
        return self.longer if self.longer is not None and context > self.short_context else self


@dataclass(frozen=True, slots=True)
class Layer:
    rotary: Rotary | None
    window: int | None = None  # the keys that a query sees, its own included; None: all


@dataclass(frozen=True, slots=True)
class Experts:
    """A mixture of experts: MLPs among which each token chooses some."""

    count: int
    used: int  # by a token
    hidden: int
    shared_hidden: int = 0  # of the MLP that every token uses; 0: there is none
    normalized: bool = True  # the shares of the chosen experts add up to 1


@dataclass(frozen=True, slots=True)
class Config:
    architecture: Architecture
    name: str
    layers: tuple[Layer, ...] = field(repr=False)
    width: int
    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    vocabulary: int
    context: int  # the positions that the model was trained for
    epsilon: float
    experts: Experts | None = None  # None: one MLP
    stores_pairs: bool = False  # the rows of q and k are stored for rotation of pairs (2i, 2i+1)
    attention_scale: float | None = None  # None: 1 / sqrt(head_size)
    attention_softcap: float | None = None  # scores become cap * tanh(score / cap)
    logit_softcap: float | None = None
    embedding_scale: float = 1.0
    residual_scale: float = 1.0  # of what a block adds
    logit_scale: float = 1.0

    @property
    def queries(self) -> int:
        return self.heads * self.head_size

    @property
    def keys(self) -> int:
        return self.kv_heads * self.head_size


def check_config(config: Config, source: str) -> Config:
    """Refuse sizes that cannot be those of a model."""
    sizes = (config.width, config.hidden, config.heads, config.kv_heads, config.head_size, config.context)
    numbers = (config.epsilon, config.embedding_scale, config.residual_scale, config.logit_scale)
    optional = (config.attention_scale, config.attention_softcap, config.logit_softcap)
    if not config.layers or min(sizes) < 1 or config.heads % config.kv_heads:
        raise FormatError(f"{source}: its sizes do not fit together: {config}")
    if not all(0 < number < inf for number in (*numbers, *(n for n in optional if n is not None))):
        raise FormatError(f"{source}: its numbers must be positive and finite: {config}")
    if config.experts is not None:
        _check_experts(config.experts, source)
    for layer in config.layers:
        if layer.rotary is not None:
            _check_rotary(layer.rotary, config.head_size, source)
        if layer.window is not None and layer.window < 1:
            raise FormatError(f"{source}: a window must be positive, not {layer.window}")
    return config


def _check_experts(experts: Experts, source: str) -> None:
    if min(experts.used, experts.hidden) < 1 or experts.used > experts.count or experts.shared_hidden < 0:
        raise FormatError(f"{source}: its sizes do not fit together: {experts}")


def _check_rotary(rotary: Rotary, head_size: int, source: str) -> None:
    if rotary.size > head_size:
        raise FormatError(f"{source}: {rotary.size} elements of a head are rotated, but it has {head_size}")
    if not all(isfinite(number) for number in (rotary.gain, *rotary.frequencies)):
        raise FormatError(f"{source}: its rotary frequencies must be finite")
    if rotary.longer is not None:
        _check_rotary(rotary.longer, head_size, source)
