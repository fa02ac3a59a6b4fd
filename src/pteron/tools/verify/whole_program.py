"""The outputs of a torch module or of an exported program."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pteron.errors import FormatError


def _opened(path: str | Path) -> torch.export.ExportedProgram:
    try:
        return torch.export.load(path)
    except OSError:
        raise
    except Exception as error:  # of zip, pickle or torch: torch has no error of its own for it
        raise FormatError(
            f"{path}: not an exported program (.pt2), or of another version of torch ({error}): write it "
            "with torch.export.save"
        ) from None


def outputs_of(reference: Any, inputs: Sequence[Any]) -> list[np.ndarray[Any, Any]]:
    if isinstance(reference, (str, Path)):
        reference = _opened(reference)
    module = reference.module() if isinstance(reference, torch.export.ExportedProgram) else reference
    given = [torch.from_numpy(np.array(x)) if isinstance(x, np.ndarray) else x for x in inputs]
    with torch.no_grad():
        made = module(*given)
    leaves = torch.utils._pytree.tree_leaves(made)
    return [leaf.float().numpy() if leaf.dtype == torch.bfloat16 else leaf.numpy() for leaf in leaves]
