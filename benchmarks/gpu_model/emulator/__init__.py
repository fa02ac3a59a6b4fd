"""An emulator of AMD's RDNA GPUs: see `machine`."""
