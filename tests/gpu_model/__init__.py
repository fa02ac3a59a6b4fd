"""Kernels on GPUs that are not here: see benchmarks/gpu_model."""
