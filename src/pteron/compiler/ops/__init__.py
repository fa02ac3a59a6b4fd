"""The rules of all operators, and how to find one by name. Importing this package registers them."""

from importlib import import_module
from pkgutil import iter_modules

from pteron.compiler.ir import extensions
from pteron.compiler.ir.op import find, known, registered

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

extensions.load()

__all__ = ["find", "known", "registered"]
