"""Programs that are exported once at their largest shape, and run at many live shapes.

python -m tests.dynamic_shape export DIR    write programs, inputs and torch's results
python -m tests.dynamic_shape run DIR       replay what a folder holds, and compare
"""
