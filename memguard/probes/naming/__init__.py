"""Who holds a tensor: from the roots down to a name that a reader of the program knows, and the statement behind it."""
