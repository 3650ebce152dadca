"""Host side: datasets, loaders and their workers, pinned memory, the process as a whole."""
