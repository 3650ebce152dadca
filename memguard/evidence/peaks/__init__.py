"""What is alive at the peak and need not be: locals, the last batch, doubles, gradients, wide logits."""
