"""What Pteron's kernels cost on GPUs that this machine has not got: see `__main__.py` and
docs/performance.md.
"""
