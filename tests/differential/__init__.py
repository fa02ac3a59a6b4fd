"""A differential test: random programs, run by Pteron, by ExecuTorch's own CPU runtime, and by torch eager.

    python -m tests.differential --count 20000

`draw` makes a program from a number. `direct` writes it as a `.pte` file of kernel calls; `through_export`
gives it to torch.export. `trial` runs it and compares every step. `shrink` makes a failure small. The folder
`corpus` keeps the failures that were found.
"""
