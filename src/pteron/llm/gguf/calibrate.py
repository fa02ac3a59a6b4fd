"""How much each input of each linear layer matters: its mean square over a page of ordinary text.

A few channels carry most of what flows through a language model, and rounding that knows them loses far less.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files

import numpy as np

from pteron.llm.architectures.config import Config
from pteron.llm.architectures.tensors import Floats, Tensors
from pteron.llm.gguf.numpy_operators import reference
from pteron.llm.gguf.weights import head_name

TEXT = files(__package__).joinpath("calibration.txt")

# Channels that the text left silent still count for this share of the mean: other text may use them.
FLOOR = np.float32(1e-3)


def input_importance(
    config: Config, tensors: Tensors, tokens: list[int], on_layer: Callable[[int], None]
) -> dict[str, Floats]:
    """The importance of each input, by the name of the linear layer."""
    importance: dict[str, Floats] = {}

    def note(x: Floats, name: str) -> None:
        power = np.square(x).mean(axis=0)
        importance[name] = power + max(FLOOR * power.mean(), np.float32(1e-20))

    model = reference(config, tensors, tokens, note)
    note(model.hidden(on_layer), head_name(tensors))
    return importance
