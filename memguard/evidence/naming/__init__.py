"""Names for holders: from the roots to a name in the user's program, and the statement behind it."""
