"""Whether what grows is emptied, cut or bounded again, read from the syntax tree."""
