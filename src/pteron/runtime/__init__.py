"""Drop-in replacements for ExecuTorch's Python interfaces: this package is `executorch.runtime`.

`portable_lib` and `llm_runner` are two more. `install` puts all of them in the place of ExecuTorch's.
"""

from pteron.runtime.executorch import *  # noqa: F403
from pteron.runtime.executorch import __all__ as _names
from pteron.runtime.switch import Installed, install

__all__ = [*_names, "Installed", "install"]
