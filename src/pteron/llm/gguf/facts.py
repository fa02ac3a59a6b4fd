"""The Config of a GGUF file, from its facts."""

from __future__ import annotations

from math import sqrt
from typing import TypeVar

from pteron.errors import FormatError, UnsupportedError
from pteron.llm.architectures.config import Config, Experts, Layer, Rotary, check_config
from pteron.llm.architectures.families import ARCHITECTURES
from pteron.llm.gguf.rotary_facts import RotaryFacts
from pteron.llm.gguf.source import GgufFile

T = TypeVar("T")

# (family, layers) of the models whose attention is scaled by 1 / sqrt(width / heads) instead of
# 1 / sqrt(head_size). No fact says it.
SCALED_BY_WIDTH = {("gemma2", 46), ("gemma3", 62)}


def config_from_gguf(file: GgufFile) -> Config:
    name = file.require("general.architecture", str)
    if name not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise UnsupportedError(f"{file.name}: the architecture {name!r} is not known; these are: {known}")
    return _Facts(file, name).config()


class _Facts:
    """The facts of a file that belong to its architecture."""

    def __init__(self, file: GgufFile, name: str) -> None:
        self.file = file
        self.family = ARCHITECTURES[name]
        self.layers = self.get("block_count", int)
        self.width = self.get("embedding_length", int)
        self.heads = self.get("attention.head_count", int)
        self.head_size = self.get("attention.key_length", int, self.width // max(self.heads, 1))

    def get(self, key: str, kind: type[T], default: T | None = None) -> T:
        """A fact. Without a default it must be there."""
        key = f"{self.family.name}.{key}"
        return self.file.require(key, kind) if default is None else self.file.get(key, kind, default)

    def find(self, key: str) -> float | None:
        """A number, where the file states one other than 0."""
        return self.get(key, float, 0.0) or None

    def config(self) -> Config:
        file, family = self.file, self.family
        if self.get("attention.value_length", int, self.head_size) != self.head_size:
            raise UnsupportedError(f"{file.name}: keys and values of different sizes are not supported")
        kind = "layer_norm_rms_epsilon" if family.norm == "rms" else "layer_norm_epsilon"
        scaled = sqrt(max(self.width, 0)) if family.scales_embedding else 1.0
        config = Config(
            architecture=family,
            name=file.get("general.name", str, family.name),
            layers=self._layers(),
            width=self.width,
            hidden=self.get("feed_forward_length", int),
            heads=self.heads,
            kv_heads=self.get("attention.head_count_kv", int, self.heads),
            head_size=self.head_size,
            vocabulary=file.shape("token_embd.weight")[0],
            context=self.get("context_length", int),
            epsilon=self.get(f"attention.{kind}", float),
            experts=self._experts(),
            stores_pairs=family.pairs_in_gguf,
            attention_scale=self._attention_scale(),
            attention_softcap=self.find("attn_logit_softcapping"),
            logit_softcap=self.find("final_logit_softcapping"),
            embedding_scale=self.get("embedding_scale", float, scaled),
            residual_scale=self.get("residual_scale", float, 1.0),
            logit_scale=1 / (self.find("logit_scale") or 1.0),
        )
        return check_config(config, file.name)

    def _experts(self) -> Experts | None:
        count = self.get("expert_count", int, 0)
        if not count:
            return None
        hidden = self.get("expert_feed_forward_length", int, self.get("feed_forward_length", int, 0))
        shared = self.get("expert_shared_feed_forward_length", int, hidden)
        return Experts(
            count=count,
            used=self.get("expert_used_count", int),
            hidden=hidden,
            shared_hidden=shared if self.family.has_shared_expert else 0,
            normalized=self.family.normalizes_experts,
        )

    def _attention_scale(self) -> float | None:
        if (self.family.name, self.layers) in SCALED_BY_WIDTH and self.width > 0:
            return sqrt(self.heads / self.width)
        return self.find("attention.scale")

    def _layers(self) -> tuple[Layer, ...]:
        if not 0 < self.layers <= len(self.file.tensor_names):
            raise FormatError(f"{self.file.name}: it cannot have {self.layers} layers")
        return tuple(self._layer(number + 1) for number in range(self.layers))

    def _layer(self, number: int) -> Layer:
        """`number` counts from 1."""
        family, window = self.family, self.get("attention.sliding_window", int, 0)
        full_every = self.get("attention.sliding_window_pattern", int, family.full_every)
        is_local = window > 0 and (not full_every or number % full_every != 0)
        return Layer(self._rotary(number, is_local), window if is_local else None)

    def _rotary(self, number: int, is_local: bool) -> Rotary | None:
        family = self.family
        if family.learned_positions or (family.unrotated_every and number % family.unrotated_every == 0):
            return None
        facts = RotaryFacts(self.file, family.name, self.head_size)
        return facts.rotary() if family.local_base is None or not is_local else facts.local(family.local_base)
