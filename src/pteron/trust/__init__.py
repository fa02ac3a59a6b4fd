"""Does every kernel compute the right results on this GPU and driver?

    report = examine(device)      # `pteron doctor --thorough`
    report.ok, str(report), report.wrong

Each case is a program with one node, and a numpy function that computes the same. Every route runs at several
live shapes, in memory that is poisoned before each call.
"""

from pteron.trust.examination import Examination, WrongResult, examine

__all__ = ["Examination", "WrongResult", "examine"]
