"""PyTorch's CUDA caching allocator as a readable model of it; no torch."""

from memguard.allocator.caching import CachingAllocator
from memguard.allocator.config import AllocatorConfig
from memguard.allocator.driver import Driver, FallingDriver, RisingDriver
from memguard.allocator.messages import OutOfMemory
from memguard.allocator.segments import OnEvent

__all__ = ["AllocatorConfig", "CachingAllocator", "Driver", "FallingDriver", "OnEvent", "OutOfMemory", "RisingDriver"]
