"""Tensors that only the cyclic garbage collector frees, and where to break their circles."""
