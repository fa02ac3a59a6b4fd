"""Pteron next to its peers, on the same adapter: `make bench`. See README.md."""
