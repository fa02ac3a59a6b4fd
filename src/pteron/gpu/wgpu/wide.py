"""Shaders that load 64-bit words, where the device has 64-bit integers.

WGSL has no such type, but naga has it as an extension. A software adapter makes long code of every load, so
half as many loads are much faster. A text has both forms: the lines between `//#narrow` and `//#wide` are
WGSL, and the lines between `//#wide` and `//#both` are comments that replace them.
"""

from __future__ import annotations

import re

_FORMS = re.compile(r"^//#narrow\n.*?^//#wide\n(.*?)^//#both\n", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"^//", re.MULTILINE)


def widened(text: str) -> str:
    return _FORMS.sub(lambda match: _COMMENT.sub("", match.group(1)), text)
