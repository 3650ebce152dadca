"""Why the run ran out of memory: what asked, what held, why it failed, what to change. No torch."""

from __future__ import annotations

from memguard.postmortem.causes import Cause
from memguard.postmortem.conclusion import PostMortem, conclude
from memguard.postmortem.scene import Scene

__all__ = ["Cause", "PostMortem", "Scene", "conclude"]
