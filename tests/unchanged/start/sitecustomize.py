"""What Python runs as it starts in a process of `tests.unchanged.run`, plain or guarded."""

import os
import random

if folder := os.environ.get("UNCHANGED_WEIGHTS"):
    from tests.unchanged.weights import watch_weights

    random.seed(0)
    watch_weights(folder)
