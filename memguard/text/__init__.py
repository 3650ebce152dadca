"""Words for people: sizes, places in the program, text that is safe to print. No torch."""
