"""PyTorch programs on any GPU, from Python, by pip alone."""
