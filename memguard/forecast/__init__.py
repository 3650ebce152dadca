"""Will a training step fit? Traced on fake tensors, simulated to the byte."""
