"""Autograd graphs as data: the nodes above a tensor, what they saved, and which graphs a tensor reaches."""
