"""Arrays of the host and of the GPU, in and out. `host` reads and makes the caller's arrays.

With numpy, outputs are numpy arrays. Without it, as in a browser, they are `HostArray`s.
"""

from pteron.arrays.gpu_array import GpuArray
from pteron.arrays.host_array import HostArray
from pteron.arrays.library import AsGiven, host

__all__ = ["AsGiven", "GpuArray", "HostArray", "host"]
