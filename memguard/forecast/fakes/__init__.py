"""A GPU of fake tensors on which a step runs without one: PyTorch made to believe in it."""
