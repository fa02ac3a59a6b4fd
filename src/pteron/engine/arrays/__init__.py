"""Arrays of the host and of the GPU, in and out. `host` reads and makes the caller's arrays.

With numpy, outputs are numpy arrays. Without it, as in a browser, they are `HostArray`s.
"""

from pteron.engine.arrays.gpu_array import GpuArray
from pteron.engine.arrays.host_array import HostArray
from pteron.engine.arrays.library import AsGiven, host

__all__ = ["AsGiven", "GpuArray", "HostArray", "host"]
