"""Who owns the memory when it has run out."""
