"""The Config of a GGUF file, from its facts."""

from __future__ import annotations

from math import sqrt
from typing import TypeVar

from pteron.errors import UnsupportedError
from pteron.llm.architectures.config import Config, Layer, Rotary, check_config
from pteron.llm.architectures.families import ARCHITECTURES
from pteron.llm.architectures.rotary import frequencies, rotary
from pteron.llm.gguf.source import GgufFile

T = TypeVar("T")


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

    def get(self, key: str, kind: type[T], default: T | None = None) -> T:
        """A fact. Without a default it must be there."""
        key = f"{self.family.name}.{key}"
        return self.file.require(key, kind) if default is None else self.file.get(key, kind, default)

    def config(self) -> Config:
        file, family = self.file, self.family
        if self.get("expert_count", int, 0):
            raise UnsupportedError(f"{file.name}: mixtures of experts are not supported")
        width, heads = self.get("embedding_length", int), self.get("attention.head_count", int)
        head_size = self.get("attention.key_length", int, width // max(heads, 1))
        if self.get("attention.value_length", int, head_size) != head_size:
            raise UnsupportedError(f"{file.name}: keys and values of different sizes are not supported")
        kind = "layer_norm_rms_epsilon" if family.norm == "rms" else "layer_norm_epsilon"
        config = Config(
            architecture=family,
            name=file.get("general.name", str, family.name),
            layers=self._layers(head_size),
            width=width,
            hidden=self.get("feed_forward_length", int),
            heads=heads,
            kv_heads=self.get("attention.head_count_kv", int, heads),
            head_size=head_size,
            vocabulary=file.shape("token_embd.weight")[0],
            context=self.get("context_length", int),
            epsilon=self.get(f"attention.{kind}", float),
            stores_pairs=family.pairs_in_gguf,
            embedding_scale=sqrt(max(width, 0)) if family.scales_embedding else 1.0,
        )
        return check_config(config, file.name)

    def _layers(self, head_size: int) -> tuple[Layer, ...]:
        turned = self._rotary(head_size)
        return (Layer(turned),) * self.get("block_count", int)

    def _rotary(self, head_size: int) -> Rotary:
        size = self.get("rope.dimension_count", int, head_size)
        values = frequencies(self.get("rope.freq_base", float, 10000.0), size) / self._slowdown()
        if "rope_freqs.weight" in self.file:  # Llama 3.1 and later
            self.file.expect("rope_freqs.weight", values.shape)
            values = values / self.file.read("rope_freqs.weight")
        return rotary(values)

    def _slowdown(self) -> float:
        """What all frequencies are divided by."""
        kind = self.get("rope.scaling.type", str, "none")
        if kind == "none":
            return 1.0
        if kind == "linear":
            return self.get("rope.scaling.factor", float)
        raise UnsupportedError(f"{self.file.name}: the rotary scaling {kind!r} is not supported; 'linear' is")
