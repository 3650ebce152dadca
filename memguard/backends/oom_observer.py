"""Hears from CUDA's allocator that it is about to raise: attached once for each process, never raises.

Private name of torch: ``_cuda_attach_out_of_memory_observer`` (checked with 2.11, 2.13 and 2.15). What is attached can
never be detached, an exception in it would replace the out-of-memory error, and attaching before CUDA is initialised
has crashed: hence one function for the whole process, and a list of who wants to know.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import torch

logger = logging.getLogger("memguard")

Listener = Callable[[int, int, int, int], None]
"""Called with device, bytes asked of the driver, what the process may have in all, what the driver has left."""

_listeners: list[Listener] = []
_attached = False


def listen(listener: Listener) -> bool:
    """Tells a listener of every failed allocation from now on, those that the program catches too.

    Returns:
        Whether it will hear anything: False while CUDA is not initialised, and in a build without CUDA.
    """
    global _attached
    attach = getattr(torch._C, "_cuda_attach_out_of_memory_observer", None)
    if attach is None or not torch.cuda.is_initialized():
        return False
    if not _attached:
        _attached = True
        attach(_heard)
    if listener not in _listeners:
        _listeners.append(listener)
    return True


def ignore(listener: Listener) -> None:
    """Tells a listener nothing any more."""
    if listener in _listeners:
        _listeners.remove(listener)


def _heard(device: int, requested_bytes: int, total_bytes: int, free_bytes: int) -> None:
    for listener in tuple(_listeners):
        try:
            listener(device, requested_bytes, total_bytes, free_bytes)
        except BaseException as error:
            logger.error("memguard: a listener failed in the out-of-memory observer: %r", error)
