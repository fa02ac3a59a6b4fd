"""The arithmetic of kernels: registers, occupancy and ceilings, from shader texts and published numbers."""
