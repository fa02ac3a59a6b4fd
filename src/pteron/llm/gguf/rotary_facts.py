"""The rotation of queries and keys, from the facts and tensors of a GGUF file."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from pteron.errors import FormatError, UnsupportedError
from pteron.llm.architectures.config import Rotary
from pteron.llm.architectures.rotary import frequencies, rotary, yarn
from pteron.llm.gguf.source import GgufFile

T = TypeVar("T")
Frequencies = NDArray[np.float64]

# What each frequency is divided by: in any context, or in short contexts and in long ones.
ALWAYS, SHORT, LONG = "rope_freqs.weight", "rope_factors_short.weight", "rope_factors_long.weight"


class RotaryFacts:
    def __init__(self, file: GgufFile, architecture: str, head_size: int) -> None:
        self.file = file
        self.architecture = architecture
        self.size = self.get("dimension_count", int, head_size)
        self.base = self.get("freq_base", float, 10000.0)
        if not 0 < self.size <= head_size or self.size % 2 or not self.base > 1:
            raise FormatError(
                f"{file.name}: {self.size} of {head_size} elements of a head cannot be rotated with the "
                f"base {self.base}"
            )

    def get(self, key: str, kind: type[T], default: T | None = None) -> T:
        key = f"{self.architecture}.rope.{key}"
        return self.file.require(key, kind) if default is None else self.file.get(key, kind, default)

    def local(self, base: float) -> Rotary:
        """The rotation of layers with a window, in families where it is another."""
        return rotary(frequencies(self.get("freq_base_swa", float, base), self.size))

    def rotary(self) -> Rotary:
        values, gain = self._scaled()
        if ALWAYS in self.file:
            values = values / self._divisors(ALWAYS)
        if LONG not in self.file:
            return rotary(values, gain)
        gain *= self.get("scaling.attn_factor", float, 1.0)
        return replace(
            rotary(values / self._divisors(SHORT), gain),
            longer=rotary(values / self._divisors(LONG), gain),
            short_context=self.get("scaling.original_context_length", int),
        )

    def _divisors(self, name: str) -> Frequencies:
        self.file.expect(name, (self.size // 2,))
        found = self.file.read(name).astype(np.float64)
        if not (found > 0).all():
            raise FormatError(f"{self.file.name}: tensor {name!r} should have positive numbers")
        return found

    def _scaled(self) -> tuple[Frequencies, float]:
        """The frequencies, and what cos and sin are multiplied by."""
        values, kind = frequencies(self.base, self.size), self.get("scaling.type", str, "none")
        if kind in ("none", "longrope"):
            return values, 1.0
        factor = self.get("scaling.factor", float)
        if not factor > 0:
            raise FormatError(f"{self.file.name}: the rotary scaling factor must be positive, not {factor}")
        if kind == "linear":
            return values / factor, 1.0
        if kind == "yarn":
            context = self.get("scaling.original_context_length", int)
            if context < 1:
                raise FormatError(f"{self.file.name}: the original context must be positive, not {context}")
            return yarn(self.base, self.size, factor, context)
        raise UnsupportedError(
            f"{self.file.name}: the rotary scaling {kind!r} is not supported; 'linear', 'yarn' and "
            "'longrope' are"
        )
