"""What lies beside the model: datasets, loaders and their workers, pinned memory, the process as a whole."""
