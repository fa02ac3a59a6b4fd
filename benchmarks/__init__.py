"""Pteron compared with other libraries (peers) on the same adapter: `make bench`. See README.md."""
