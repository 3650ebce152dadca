"""Autograd graphs: those that outlive their batch, and those that nobody uses."""
