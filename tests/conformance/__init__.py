"""The tests of ExecuTorch's own WebGPU backend: its wheel exports their programs, and Pteron runs them.

`catalogue` has the declarative tests of operators. `unit_programs` has the programs that the unit tests
export. Programs with dynamic shapes are in `tests.dynamic_shape.peer`.
"""
