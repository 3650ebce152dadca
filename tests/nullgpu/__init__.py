"""The null GPU: the CUDA build of PyTorch with its real allocator, on a machine without a GPU."""
