"""Tensors' storages, the parts of modules and their hooks, read without running the user's code."""
