"""PyTorch's CUDA caching allocator as a readable model of it; no torch."""
