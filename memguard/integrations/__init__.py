"""Front doors: each only translates its host's hooks to the recorder's events."""
