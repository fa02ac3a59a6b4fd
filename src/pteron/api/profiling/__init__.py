"""The time of kernels: profiles of a method, and trials of its routes at load."""
