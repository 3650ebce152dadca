"""Programs that no part of the forecast was made for: operators, models, and whole training steps."""
