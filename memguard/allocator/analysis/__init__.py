"""A snapshot explained, as plain numbers and lines."""

from memguard.allocator.analysis.device import DeviceAnalysis, Trace, analyse

__all__ = ["DeviceAnalysis", "Trace", "analyse"]
