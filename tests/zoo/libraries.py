"""Import the libraries with only their Python parts.

The wheels of torchvision and torchaudio bring operators that need the CUDA build of torch. Where they cannot
be loaded, the import fails because names are missing. They are declared here. Nothing in the zoo calls them.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import sys
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

NMS = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


@functools.cache
def load() -> Any:
    """Import torchvision. After that, timm, transformers and diffusers can be imported too."""
    import torch

    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    warnings.filterwarnings("ignore")
    spec = importlib.util.find_spec("torchvision")
    assert spec is not None and spec.origin is not None, "torchvision is not installed: run `make setup`"
    try:
        torch.ops.load_library(str(Path(spec.origin).with_name("_C.so")))
    except OSError:
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(name + NMS)
        load.__dict__["library"] = library  # which forgets its names when it is collected
    without_compiled_torchaudio()
    import torchvision

    return torchvision


def load_torchaudio() -> Any:
    load()
    import torchaudio.models

    return torchaudio


def without_compiled_torchaudio() -> None:
    """Transformers imports torchaudio, too, where it is installed."""
    compiled: Any = ModuleType("torchaudio._extension")
    compiled._IS_TORCHAUDIO_EXT_AVAILABLE = False
    compiled.fail_if_no_align = lambda function: function
    sys.modules[compiled.__name__] = compiled
