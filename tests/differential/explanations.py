"""What is known and has a reason: what docs/known-differences.md lists, and mistakes of a reference."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.differential.trial import Finding


@dataclass(frozen=True)
class Known:
    """Findings of this kind whose kernel and detail match."""

    why: str
    kind: str
    kernel: str = ""
    detail: str = ""

    def covers(self, finding: Finding) -> bool:
        return (
            finding.kind == self.kind
            and re.search(self.kernel, finding.kernel) is not None
            and re.search(self.detail, finding.detail) is not None
        )


KNOWN = (
    # -- Pteron says at load or in a call what it cannot do -----------------------------------------------
    Known("sizes that depend on data", "refuses", "", "depends on the data|output_size is missing"),
    Known("complex arithmetic", "refuses", "", "does not take complex tensors"),
    Known("images of bytes, resized", "refuses", "upsample", "must be a float tensor|must hold float images"),
    Known("integers beyond 32 bits", "refuses", "", "beyond 32 bits|does not fit the GPU's int32"),
    Known(
        "sizes of empty images", "refuses", "pixel_unshuffle|convolution_backward", r"\(.*\b0\b.*does not fit"
    ),
    Known("unused inputs of a delegate", "refuses", "", "do not tell which are unused"),
    # -- docs/known-differences.md ------------------------------------------------------------------------
    Known("a buffer that the Vulkan partitioner makes a constant", "exported", "index_put_|copy_", "^Vulkan"),
    Known("integers divided by zero", "accepts", "", "ZeroDivision|[Dd]ivision by zero"),
    # -- mistakes of a reference --------------------------------------------------------------------------
    Known("indices outside of the input", "accepts", "max_pool2d_with_indices_backward", "ends the process"),
)


def explanation(finding: Finding) -> str | None:
    return next((known.why for known in KNOWN if known.covers(finding)), None)
