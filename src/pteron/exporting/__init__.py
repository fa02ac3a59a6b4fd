"""From PyTorch to a `.pte` file, in one call.

    made = pteron.export(module, (x,), "model.pte", dynamic_shapes=({0: Dim("n", max=64)},), quantize="4bit")
    print(made.report)

torch, torchao and ExecuTorch are imported when the first module is exported, not before.
"""

from pteron.exporting.api import Export, export
from pteron.exporting.report import Outside, Report

__all__ = ["Export", "Outside", "Report", "export"]
