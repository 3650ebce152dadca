"""The Memory tab of TensorBoard."""
