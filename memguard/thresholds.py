"""Shares of the device from which memory is worth a remark, a warning, an alarm: unit and reason for each."""

from __future__ import annotations

from typing import Final

WORD_SHARE: Final = 0.001
"""Of the device. What holds less, and does not grow, changes nothing that anybody could measure: no word."""
LARGE_SHARE: Final = 0.2
"""Of the device. What one holder keeps of it for more than a moment decides which batch fits: a warning."""
PEAK_SHARE: Final = 0.5
"""Of the highest peak, together with `NOTABLE_SHARE` of the device: without it the run would need half the memory."""
NOTABLE_SHARE: Final = 0.1
"""Of the device, by which memory that is kept may rise in a run before silence about it would be false."""
FULL_SHARE: Final = 0.97
"""Of the device, reserved: with retries of the allocator, the run was at its edge."""
ALIKE: Final = 0.03
"""By which the sizes of two elements may differ and still be the same: an allocator rounds, a model has buffers."""
EXPLAINED: Final = 0.5
"""Share of a growth that a named cause must account for, in bytes, to be told as what is behind it."""
