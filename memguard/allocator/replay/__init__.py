"""A recorded trace through the simulated allocator: as it was, or as it would have been under other settings."""

from memguard.allocator.replay.recorded_conf import recorded_conf
from memguard.allocator.replay.result import Replay
from memguard.allocator.replay.run import replay
from memguard.allocator.replay.what_if import WhatIf, what_if

__all__ = ["Replay", "WhatIf", "recorded_conf", "replay", "what_if"]
