"""Bad luck of every kind: the training must not know that memguard is there."""
