"""Why the run ran out of memory: what asked, what held, why it failed, what to change. No torch."""

from __future__ import annotations

from memguard.postmortem.conclusion import PostMortem, conclude
from memguard.postmortem.scene import Scene
from memguard.postmortem.verdict import Cause

__all__ = ["Cause", "PostMortem", "Scene", "conclude"]
