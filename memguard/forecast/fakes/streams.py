"""Streams, events and device contexts of a GPU on which nothing runs: PyTorch's types, by the numbers that matter."""

from __future__ import annotations

from typing import Any, final

import torch

_CUDA = 1
"""The number of CUDA among PyTorch's types of devices."""


@final
class FakeStream:
    """A CUDA stream by number; 0 is the default stream."""

    _made = 0
    device = torch.device("cuda", 0)

    def __init__(self, device: Any = None, priority: int = 0, **_: Any) -> None:
        """`device` and `priority` are accepted and ignored."""
        FakeStream._made += 1
        self.number = FakeStream._made
        self.cuda_stream = self.stream_id = self.number
        self.priority = priority
        self.device_index, self.device_type = self.device.index, _CUDA

    def wait_stream(self, stream: Any) -> None:
        """Nothing runs, so nothing is waited for."""

    def wait_event(self, event: Any) -> None:
        """Nothing runs, so nothing is waited for."""

    def record_event(self, event: Any = None) -> Any:
        """An event that has happened."""
        return event if event is not None else FakeEvent()

    def synchronize(self) -> None:
        """Nothing runs, so nothing is waited for."""

    def query(self) -> bool:
        """All work is done."""
        return True

    def is_capturing(self) -> bool:
        """No graph is being captured."""
        return False

    def __enter__(self) -> FakeStream:
        self._previous = current.stream
        current.stream = self
        return self

    def __exit__(self, *_: object) -> None:
        current.stream = self._previous


@final
class FakeEvent:
    """A CUDA event that has happened."""

    def __init__(self, *_: Any, **__: Any) -> None:
        """All options are accepted and ignored."""

    def record(self, stream: Any = None) -> None:
        """Happened."""

    def wait(self, stream: Any = None) -> None:
        """Happened."""

    def synchronize(self) -> None:
        """Happened."""

    def query(self) -> bool:
        """Happened."""
        return True

    def elapsed_time(self, other: Any) -> float:
        """No time passes."""
        return 0.0


class _Current:
    def __init__(self) -> None:
        self.stream = FakeStream()
        self.stream.number = self.stream.cuda_stream = self.stream.stream_id = 0
        self.of_node = 0


current = _Current()
"""The stream that user code has chosen, and in a backward that of the forward which it belongs to."""


def current_stream() -> int:
    """The number of the stream on which things happen now."""
    return current.stream.number or current.of_node


@final
class DeviceContext:
    """torch.cuda.device and device_of: there is one device, so nothing changes."""

    idx = prev_idx = 0

    def __init__(self, device: Any = None) -> None:
        """`device` is accepted and ignored."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None


@final
class StreamContext:
    """torch.cuda.stream, which takes None too."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        if self.stream is not None:
            self.stream.__enter__()

    def __exit__(self, *_: object) -> None:
        if self.stream is not None:
            self.stream.__exit__()
