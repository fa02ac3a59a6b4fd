"""Models of well-known libraries: exported by stock ExecuTorch, run, and compared with torch."""
