"""What is alive at the peak and need not be: locals, the last batch, tensors made twice, gradients, wide logits."""
