"""Whether Python runs in a browser, as Pyodide."""

from __future__ import annotations

import sys

IN_BROWSER = sys.platform == "emscripten"
