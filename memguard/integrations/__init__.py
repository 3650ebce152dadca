"""Front doors: each translates its host's hooks to the recorder's events."""
