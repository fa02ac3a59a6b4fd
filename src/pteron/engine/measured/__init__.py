"""What was measured on the GPUs of this machine: fast routes, and wrong ones."""
