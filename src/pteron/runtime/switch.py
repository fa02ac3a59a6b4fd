"""Put Pteron's interfaces in the place of ExecuTorch's, for programs that import ExecuTorch."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType, TracebackType

# ExecuTorch's modules, and their replacements.
MODULES = {
    "executorch.runtime": "pteron.runtime.executorch",
    "executorch.extension.pybindings.portable_lib": "pteron.runtime.portable_lib",
    "executorch.extension.llm.runner": "pteron.runtime.llm_runner",
}


class Installed:
    """What `install` has changed. `undo` restores it, and so does the end of a `with`."""

    def __init__(self) -> None:
        self._before = {name: sys.modules.get(name) for name in MODULES}
        for name, replacement in MODULES.items():
            _put(name, importlib.import_module(replacement))

    def undo(self) -> None:
        """Restore ExecuTorch's modules."""
        for name, module in self._before.items():
            _put(name, module)
        self._before = {}

    def __enter__(self) -> Installed:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.undo()


def _put(name: str, module: ModuleType | None) -> None:
    """Make a module the one that `import` finds under a name, or none."""
    parent, _, leaf = name.rpartition(".")
    package = sys.modules.get(parent)
    if module is None:
        sys.modules.pop(name, None)
        if package is not None and hasattr(package, leaf):
            delattr(package, leaf)
        return
    sys.modules[name] = module
    if package is not None:
        setattr(package, leaf, module)


def install() -> Installed:
    """Let programs that import ExecuTorch's runtime get Pteron's, in this process.

    Call it before importing libraries that import ExecuTorch, such as optimum-executorch. Only ExecuTorch's
    runtime, its `portable_lib` and its text runner are replaced.

    Returns:
        A handle. `undo()` restores ExecuTorch's modules for later imports. It is also a context manager.

    Example:
        ```python
        import pteron.runtime

        pteron.runtime.install()
        from optimum.executorch import ExecuTorchModelForCausalLM  # runs on the GPU
        ```
    """
    return Installed()
