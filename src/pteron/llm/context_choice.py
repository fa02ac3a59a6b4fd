"""The length of a model's context: the one that is asked for, or as much as memory allows."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from pteron.errors import FormatError, InputError
from pteron.llm.companions import DESCRIPTION
from pteron.pte import ProgramFile

TOKENS = "input0"  # the input of a converted model
KV_NBYTES = 1 << 30  # of all KV caches of a model, unless a context or kv_memory is given
ITEMSIZES = {"f16": 2, "f32": 4}


@dataclass(frozen=True, slots=True)
class ContextFacts:
    """What a program says about its context. Zeros: it says nothing, and its KV caches stay as they are."""

    context: int = 0  # positions of the KV caches in the file
    longest_context: int = 0  # to which they can be lengthened at load
    model_context: int = 0  # what the model was trained for
    longest_call: int = 0
    kv_elements_per_token: int = 0

    @classmethod
    def of(cls, description: Mapping[str, Any]) -> ContextFacts:
        found = {field.name: description.get(field.name) for field in fields(cls)}
        return cls(**{name: value for name, value in found.items() if isinstance(value, int) and value > 0})

    @property
    def can_change(self) -> bool:
        return min(self.context, self.longest_context, self.longest_call, self.kv_elements_per_token) > 0

    def fits(self, context: int) -> bool:
        """Whether the program has room for as much of a context as the model has."""
        return min(context, self.model_context) <= self.longest_context

    def call_length(self, ubatch: int | None, context: int | None) -> int | None:
        """The most tokens of a call. None: those of the file."""
        if ubatch is not None and not 1 <= ubatch <= self.longest_call:
            raise InputError(
                f"ubatch is {ubatch}: this program takes at most {self.longest_call} tokens in a call. "
                "Convert the model again with a larger max_seq_len"
                if self.longest_call
                else "ubatch is for models that Pteron converts: leave it out"
            )
        if not self.can_change:
            return None
        return min(ubatch or self.longest_call, context or self.context)

    def shapes(self, call: int | None) -> dict[str, dict[int, int]] | None:
        """The bounds of the inputs for calls of this many tokens. None: those of the file."""
        return None if call in (None, self.longest_call) else {TOKENS: {1: call}}


def file_facts(source: Any) -> ContextFacts:
    """The facts of a `.pte` file that `pteron convert` wrote."""
    if not isinstance(source, (str, Path, bytes)):
        return ContextFacts()
    with ProgramFile.open(source) as file, suppress(FormatError, ValueError):
        description = json.loads(bytes(file.named_data(DESCRIPTION)))
        if isinstance(description, dict):
            return ContextFacts.of(description)
    return ContextFacts()


def chosen_context(
    facts: ContextFacts, wanted: int | None, kv_dtype: str, parallel: int, kv_memory: int | None
) -> int | None:
    """The tokens of the context. None: those of the file.

    By default it is the model's, as far as the KV caches of all conversations have room in `kv_memory`, or in
    1 GiB and a quarter of the machine's memory. It is never less than the file's.
    """
    if not facts.can_change:
        return wanted
    if wanted is None:
        room = (kv_memory or min(KV_NBYTES, _machine_nbytes() // 4)) // max(1, parallel)
        tokens = room // (facts.kv_elements_per_token * ITEMSIZES.get(kv_dtype, 4))
        return max(facts.context, min(facts.longest_context, tokens))
    if not 1 <= wanted <= facts.longest_context:
        raise InputError(
            f"context_length is {wanted}: this model has contexts of 1 to {facts.longest_context} tokens"
        )
    return wanted


def _machine_nbytes() -> int:
    """The memory of this machine. A GPU does not tell how much it has."""
    with suppress(AttributeError, ValueError, OSError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return 4 * KV_NBYTES
