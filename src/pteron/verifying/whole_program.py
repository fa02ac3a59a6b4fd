"""The outputs of a torch module or of an exported program."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch


def outputs_of(reference: Any, inputs: Sequence[Any]) -> list[np.ndarray[Any, Any]]:
    if isinstance(reference, (str, Path)):
        reference = torch.export.load(reference)
    module = reference.module() if isinstance(reference, torch.export.ExportedProgram) else reference
    given = [torch.from_numpy(np.array(x)) if isinstance(x, np.ndarray) else x for x in inputs]
    with torch.no_grad():
        made = module(*given)
    leaves = torch.utils._pytree.tree_leaves(made)
    return [leaf.float().numpy() if leaf.dtype == torch.bfloat16 else leaf.numpy() for leaf in leaves]
