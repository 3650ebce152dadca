"""The largest batch that fits, in few trials: a line through what was tried guesses, trials confirm."""

from __future__ import annotations

from collections.abc import Callable

_MOST_TRIALS = 60
_MOST_GUESSES = 3


def largest_fitting(need_of: Callable[[int], tuple[int, bool]], start: int, capacity: int) -> int:
    """The largest batch for which a trial says that it fits, 0 if none does.

    Both it and its successor were tried, unless it is so large that the search was given up.

    Args:
        need_of: Bytes that a batch needs on a GPU without end, and whether it fits. Repeated calls must be cheap.
        start: The first batch to try.
        capacity: Bytes that there are, for the guesses.
    """
    low, high = 0, 0  # the largest known to fit, the smallest known not to; 0: none yet
    needs: dict[int, int] = {}
    guess = max(1, start)
    guesses = 0
    for _ in range(_MOST_TRIALS):
        need, fits = need_of(guess)
        needs[guess] = need
        if fits:
            low = max(low, guess)
        else:
            high = min(high, guess) if high else guess
        if high and high - low == 1:
            break
        line = _crossing(needs, capacity)
        if not high:
            guess = max(low + 1, line if line is not None else low * 2)
        elif line is not None and guesses < _MOST_GUESSES:
            guesses += 1
            guess = min(max(line, low + 1), high - 1)
        else:
            guess = (low + high) // 2
    return low


def _crossing(needs: dict[int, int], capacity: int) -> int | None:
    """Where a line through the two trials nearest to the capacity reaches it."""
    if len(needs) < 2:
        return None
    (first, need), (second, other) = sorted(needs.items(), key=lambda trial: abs(trial[1] - capacity))[:2]
    slope = (other - need) / (second - first)
    if slope <= 0:
        return None
    return max(1, int(first + (capacity - need) / slope))
