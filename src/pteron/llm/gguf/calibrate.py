"""How much each input of each linear layer matters: its mean square over a page of ordinary text.

A few channels carry most of what flows through a language model, and rounding that knows them loses far less.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.resources import files

import numpy as np

from pteron.llm.gguf.config import Config
from pteron.llm.gguf.quantize import Floats
from pteron.llm.gguf.reference import Reference
from pteron.llm.gguf.source import GgufFile

TEXT = files(__package__).joinpath("calibration.txt")

# Channels that the text left silent still count for this share of the mean: other text may use them.
FLOOR = np.float32(1e-3)


def input_importance(
    config: Config, file: GgufFile, tokens: list[int], on_layer: Callable[[int], None]
) -> dict[str, Floats]:
    """The importance of each input, by the name of the linear layer."""
    importance: dict[str, Floats] = {}

    def note(x: Floats, names: Sequence[str]) -> None:
        power = np.square(x).mean(axis=0)
        importance.update(dict.fromkeys(names, power + max(FLOOR * power.mean(), np.float32(1e-20))))

    Reference(config, file, note).hidden(tokens, on_layer)
    return importance
