"""Export a PyTorch module to a `.pte` file, in one call.

    made = pteron.export(module, (x,), "model.pte", dynamic_shapes=({0: Dim("n", max=64)},), quantize="4bit")
    print(made.report)

torch, torchao and ExecuTorch are imported at the first export, not before.
"""

from pteron.tools.exporter.api import Export, export
from pteron.tools.exporter.report import ExportReport, Outside

__all__ = ["Export", "ExportReport", "Outside", "export"]
