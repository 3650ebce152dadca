"""What a request asks for, checked: a wrong number is the client's fault and must not become a server error."""

from __future__ import annotations

import math

from werkzeug import wrappers

from memguard.errors import MemGuardError


class BadRequest(MemGuardError):
    """A request that the page would never send; answered with 400 and this text."""


def whole(request: wrappers.Request, name: str, default: int) -> int:
    """A whole number from 0 on; the default where the request does not name it."""
    text = request.args.get(name, str(default))
    try:
        value = int(text)
    except ValueError:
        raise BadRequest(f"{name} must be a whole number, got {text[:40]!r}") from None
    if not 0 <= value < 2**53:
        raise BadRequest(f"{name} must be from 0 to 2**53, got {text[:40]}")
    return value


def window(request: wrappers.Request) -> tuple[float | None, float | None, int]:
    """The window of batches that is asked for, and the chart's width in pixels."""
    ends: list[float | None] = []
    for name in ("x0", "x1"):
        text = request.args.get(name)
        try:
            value = None if text is None else float(text)
        except ValueError:
            value = math.nan
        if value is not None and not abs(value) <= 2**53:
            raise BadRequest(f"{name} must be a batch number, got {str(text)[:40]!r}")
        ends.append(value)
    if ends[0] is not None and ends[1] is not None and ends[0] > ends[1]:
        raise BadRequest(f"x0 must not be above x1, got {ends[0]:g} and {ends[1]:g}")
    return ends[0], ends[1], min(50_000, max(50, whole(request, "px", 1000)))
