"""What CUDA's kernels do that fake tensors do not: memory beside their outputs, and other ways to the same result."""
