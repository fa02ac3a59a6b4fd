"""A page that shows a program: its graph, live shapes, kernels, memory, times and values.

The answers to the page's questions (`Viewer`) need no web library. The page is in the extra `view`.
"""
