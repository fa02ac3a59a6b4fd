"""What ExecuTorch's own WebGPU backend is tested with, exported from the wheel and run here.

The declarative catalogue of operators is in `catalogue`, the programs that its unit tests export in
`unit_programs`; the programs of dynamic shape have their own package, `tests.dynamic_shape.peer`.
"""
