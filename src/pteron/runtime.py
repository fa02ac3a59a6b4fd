"""`pteron.runtime`: a drop-in replacement for `executorch.runtime` (see `pteron.compat.executorch`)."""

from pteron.compat.executorch import *  # noqa: F403
from pteron.compat.executorch import __all__ as __all__
