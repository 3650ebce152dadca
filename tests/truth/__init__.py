"""What memguard says of a program beside an independent count of the same."""
