"""Are the numbers right on this GPU? Every node is computed again by a reference, from its real inputs.

    report = pteron.verify("model.pte")                  # node by node, against torch where it is installed
    report.ok, report.first_bad, report.worst(5)
    pteron.verify(program, module, (x,))                 # a whole program against the module it came from

The inputs of a node are read from the GPU, so an error is found in the node where it arises.
"""

from pteron.tools.verify.repetition import RepeatReport, repeat
from pteron.tools.verify.verification import verify
from pteron.tools.verify.verify_report import NodeResult, VerifyReport

__all__ = ["NodeResult", "RepeatReport", "VerifyReport", "repeat", "verify"]
