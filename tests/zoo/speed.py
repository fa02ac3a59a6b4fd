"""Make torch.export and ExecuTorch faster. What they write stays the same.

They take seconds for a small model. A part of this time goes into work that has no effect.
"""

from __future__ import annotations

import functools
import gc
from typing import Any

import torch
import torch._export.utils
from torch.fx.traceback import NodeSource


@functools.cache
def up() -> None:
    torch.set_num_threads(1)  # a thread pool is slower than one thread for small tensors
    gc.freeze()
    gc.disable()  # exporters make many objects: the caller collects between programs
    NodeSource.__deepcopy__ = share_history  # type: ignore[attr-defined]
    internals: Any = torch._export.utils
    internals._materialize_cpp_cia_ops = functools.cache(internals._materialize_cpp_cia_ops)


def share_history(source: NodeSource, memo: Any) -> NodeSource:
    """Every pass copies the history of every node, and never changes a copy."""
    return source
