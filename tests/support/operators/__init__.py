"""Samples of the arguments of every operator, and tables made from them."""
