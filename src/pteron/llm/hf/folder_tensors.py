"""The tensors of a Hugging Face folder, under the names that GGUF has for them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pteron.errors import FormatError, UnsupportedError
from pteron.llm.architectures.tensors import Floats
from pteron.llm.architectures.transformer import Rows
from pteron.llm.hf.safetensors import FLOATS, StoredTensor

# The number of a layer, in a name such as model.layers.7.mlp.up_proj.
NUMBER = re.compile(r"(?<=\.)\d+(?=\.)|^\d+(?=\.)")

# The module that a whole model may put around what the names are of.
PREFIXES = ("", "model.", "transformer.", "bert.", "nomic_bert.", "roberta.", "distilbert.")
TEXT_MODEL = "language_model."  # the part of a model that also sees images

# What is computed from other things and need not be stored.
COMPUTED = re.compile(r"rotary_emb\.inv_freq$|\.attn\.(masked_)?bias$|position_ids$")

# One of the experts of a layer, and the gate of the expert that all tokens share.
EXPERT = re.compile(r"(blk\.\d+\.ffn_\w+_exps)\.(\d+)\.weight")
ONE_ROW = "ffn_gate_inp_shexp.weight"


@dataclass(frozen=True, slots=True)
class Naming:
    """How a family's tensors are called and stored.

    modules: Hugging Face's names of modules, and ours; {n} is the number of a layer.
    """

    modules: Mapping[str, str]
    norm_offset: float = 0.0  # what is added to the weights of norms
    transposed: bool = False  # matrices of layers are stored as [in, out]
    unused: re.Pattern[str] | None = None  # tensors that Pteron's model has no use for


@dataclass(frozen=True, slots=True)
class Renamed:
    stored: StoredTensor
    transposed: bool = False
    offset: float = 0.0
    rows: Rows | None = None  # those of the stored tensor that it consists of; None: all
    is_vector: bool = False  # a matrix of one row, which GGUF has as a vector

    @property
    def shape(self) -> tuple[int, ...]:
        if self.is_vector:
            return self.stored.shape[1:]
        first, *others = reversed(self.stored.shape) if self.transposed else self.stored.shape
        return (first if self.rows is None else len(self.rows), *others)

    def read(self, rows: Any) -> Floats:
        if self.is_vector:
            vector: Floats = self.stored.floats()[0][rows]
            return vector
        if self.rows is not None:
            rows = self.rows[rows]
        values: Floats = self.stored.floats().T[rows] if self.transposed else self.stored.floats(rows)
        return np.ascontiguousarray(values + np.float32(self.offset) if self.offset else values)


@dataclass(frozen=True, slots=True)
class Stacked:
    """The matrices of all experts as one tensor, [experts, out, in]."""

    parts: tuple[Renamed, ...]

    @property
    def stored(self) -> StoredTensor:
        return self.parts[0].stored

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.parts), *self.parts[0].shape)

    def read(self, rows: Any) -> Floats:
        """`rows` are experts: a number or a slice."""
        if isinstance(rows, int):
            return self.parts[rows].read(slice(None))
        return np.stack([part.read(slice(None)) for part in self.parts[rows]])


class FolderTensors:
    """The tensors of a model, as `Tensors` describes them."""

    def __init__(self, name: str, stored: Mapping[str, StoredTensor], naming: Naming) -> None:
        self.name = name
        found: dict[str, Renamed] = {}
        for ours, renamed in _renamed(stored, naming):
            if ours in found:
                raise FormatError(f"{name}: two tensors are {ours!r}: {renamed.stored.name!r} is one of them")
            found[ours] = renamed
        self._tensors = _stacked(found, name)

    def drop(self, name: str) -> None:
        """Forget a tensor."""
        self._tensors.pop(name, None)

    def divide(self, name: str, parts: Mapping[str, Rows]) -> None:
        """Present rows of a tensor under other names, or some of them under its own."""
        whole = self._tensor(name)
        if isinstance(whole, Stacked):
            raise FormatError(f"{self.name}: the experts of {name!r} cannot be divided")
        self.drop(name)
        for part, rows in parts.items():
            self._tensors[part] = replace(whole, rows=rows)

    @property
    def tensor_names(self) -> list[str]:
        return list(self._tensors)

    def __contains__(self, name: object) -> bool:
        return name in self._tensors

    def shape(self, name: str) -> tuple[int, ...]:
        return self._tensor(name).shape

    def size(self, name: str) -> int:
        return prod(self.shape(name))

    def expect(self, name: str, shape: tuple[int, ...]) -> None:
        stored = self._tensor(name).stored
        if self.shape(name) != shape:
            raise FormatError(
                f"{self.name}: tensor {stored.name!r} has shape {self.shape(name)}, expected {shape}"
            )
        if stored.dtype not in FLOATS:
            raise UnsupportedError(
                f"{self.name}: tensor {stored.name!r} has the dtype {stored.dtype}; "
                f"these are supported: {', '.join(FLOATS)}"
            )

    def read(self, name: str, rows: Any = slice(None)) -> Floats:
        tensor = self._tensor(name)
        values = tensor.read(rows)
        if not np.isfinite(values).all():
            raise FormatError(f"{self.name}: tensor {tensor.stored.name!r} has values that are not finite")
        return values

    def kind(self, name: str) -> str:
        return self._tensor(name).stored.dtype

    def stored(self, name: str, rows: Any = slice(None)) -> NDArray[np.uint8]:
        raise UnsupportedError(f"{self.name}: tensor {name!r} is not in a block format")

    def _tensor(self, name: str) -> Renamed | Stacked:
        try:
            return self._tensors[name]
        except KeyError:
            raise FormatError(f"{self.name}: the tensor for {name!r} is missing") from None


def _renamed(stored: Mapping[str, StoredTensor], naming: Naming) -> Iterator[tuple[str, Renamed]]:
    """Each tensor under our name, or under its own where it has no place."""
    for name, tensor in stored.items():
        ours = _our_name(name, naming)
        if ours is None:
            if not COMPUTED.search(name) and not (naming.unused and naming.unused.search(name)):
                yield name, Renamed(tensor)
            continue
        is_norm = ours.endswith("_norm.weight")
        is_linear = ours.startswith("blk.") and len(tensor.shape) == 2
        yield (
            ours,
            Renamed(
                tensor,
                transposed=naming.transposed and is_linear,
                offset=naming.norm_offset if is_norm else 0.0,
                is_vector=ours.endswith(ONE_ROW) and len(tensor.shape) == 2,
            ),
        )


def _stacked(tensors: Mapping[str, Renamed], source: str) -> dict[str, Renamed | Stacked]:
    """The tensors, with those of experts put together."""
    result: dict[str, Renamed | Stacked] = {}
    experts: dict[str, dict[int, Renamed]] = {}
    for name, tensor in tensors.items():
        match = EXPERT.fullmatch(name)
        if match is None:
            result[name] = tensor
        else:
            experts.setdefault(f"{match[1]}.weight", {})[int(match[2])] = tensor
    for name, parts in experts.items():
        alike = {(part.shape, part.stored.dtype) for part in parts.values()}
        if sorted(parts) != list(range(len(parts))) or len(alike) > 1:
            raise FormatError(f"{source}: the experts of {name!r} are not complete, or not of one form")
        result[name] = Stacked(tuple(parts[number] for number in range(len(parts))))
    return result


def _our_name(name: str, naming: Naming) -> str | None:
    module, _, parameter = name.replace(TEXT_MODEL, "", 1).rpartition(".")
    number, *expert = NUMBER.findall(module) or [""]
    pattern = NUMBER.sub("{e}", NUMBER.sub("{n}", module, count=1))
    for prefix in PREFIXES:
        for key in (prefix + pattern, pattern.removeprefix(prefix)):
            if key in naming.modules:
                ours = naming.modules[key].replace("{n}", number).replace("{e}", "".join(expert))
                return f"{ours}.{parameter}"
    return None
