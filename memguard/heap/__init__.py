"""Live objects as data: what an object holds, the walk from the roots to what holds a tensor, sizes on the host."""
