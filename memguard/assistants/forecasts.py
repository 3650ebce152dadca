"""Questions about forecasts: those that were saved, and whether a run or a forecast fits another GPU. No torch.

A forecast itself runs the project's code, on fake tensors: that is no reading, and is offered only where it was asked
for.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, final

from memguard.assistants.directory import Directory, bounded
from memguard.assistants.runs import RunTools
from memguard.errors import MemGuardError
from memguard.text.units import format_bytes

MOST_FILES = 50
_MOST_FILE_BYTES = 16 << 20
_KEYS = {"steps", "allocated_peak_bytes", "reserved_peak_bytes", "verdict", "owners"}
_TOLD = ("device", "verdict", "fits", "allocated_peak_bytes", "reserved_peak_bytes", "batch", "largest_batch")


@final
class ForecastTools:
    """Tools that read what ``memguard forecast --json`` wrote below a directory."""

    def __init__(self, directory: Directory, runs: RunTools) -> None:
        self._directory, self._runs = directory, runs

    def tools(self, *, running: bool = False) -> list[Any]:
        """The functions that an assistant may call.

        Args:
            running: Whether it may also have forecasts made, which runs the project's code.
        """
        result: list[Any] = [self.list_forecasts, self.describe_forecast, self.would_it_fit]
        return [*result, self.forecast_step] if running else result

    def list_forecasts(self, limit: int = 20) -> dict[str, Any]:
        """Lists saved forecasts (files that memguard forecast --json wrote), the newest first.

        Args:
            limit: How many, at most 50.
        """
        files = sorted(self._directory.files(".json"), key=lambda path: path.stat().st_mtime, reverse=True)
        result = []
        for path in files:
            data = self._known(path)
            if data is not None:
                result.append({"file": self._directory.name_of(path), **{key: data.get(key) for key in _TOLD}})
                if len(result) == max(1, min(limit, MOST_FILES)):
                    break
        return bounded({"directory": str(self._directory.root), "forecasts": result})

    def describe_forecast(self, file: str) -> dict[str, Any]:
        """One saved forecast: whether it fits, peak and its range, owners, modules and lines at the peak, suggestions.

        Args:
            file: The file, as list_forecasts names it.
        """
        data = {key: value for key, value in self._forecast(file).items() if key != "plot"}
        return bounded({"file": file, **data})

    def would_it_fit(self, card: str, run: str = "", forecast: str = "") -> dict[str, Any]:
        """Whether the memory that a run took (or that a forecast says) fits another GPU, by its peaks.

        Args:
            card: A GPU like h100, a100-80gb, t4, or an amount of memory like 24GiB.
            run: The run's folder; "" is the newest, unless a forecast is given.
            forecast: A saved forecast's file.
        """
        from memguard.forecast.cards import find_card

        found = find_card(card)
        if forecast:
            data = self._forecast(forecast)
            allocated, reserved, of = data["allocated_peak_bytes"], data["reserved_peak_bytes"], forecast
        else:
            summary = self._runs.run_summary(run).summary
            allocated, reserved, of = summary.peak.allocated_bytes, summary.reserved_peak_bytes, run or "newest run"
        if not isinstance(allocated, int):
            raise MemGuardError(f"the peak of {of} is not known, so nothing can be said of another GPU")
        usable = found.usable_bytes
        needed = reserved if isinstance(reserved, int) else allocated
        return {
            "of": of,
            "card": found.title,
            "card_total_bytes": found.total_bytes,
            "usable_bytes": usable,
            "allocated_peak_bytes": allocated,
            "reserved_peak_bytes": reserved,
            "fits": needed <= usable,
            "could_fit": allocated <= usable,
            "in_words": _verdict(found.title, usable, allocated, needed),
        }

    def forecast_step(self, target: str, device: str = "", batch: int | None = None) -> dict[str, Any]:
        """Runs a training step on fake tensors, without a GPU, and says what it needs. Runs the project's code.

        Args:
            target: FILE.py:function, where the function returns (model, optimizer, step); FILE is in the directory.
            device: A GPU like h100, or an amount of memory like 24GiB; "" for none.
            batch: The batch size, to ask for the largest that fits.
        """
        from memguard.forecast.from_file import forecast_target

        file, colon, function = target.rpartition(":")
        if not colon or not function.isidentifier():
            raise MemGuardError(f"target must be FILE.py:function, got {target!r}")
        path = self._directory.path(file)
        result = forecast_target(f"{path}:{function}", batch=batch, device=device or None)
        data = {key: value for key, value in result.to_json().items() if key != "plot"}
        return bounded({"target": target, "text": str(result), **data})

    # Inside

    def _forecast(self, file: str) -> dict[str, Any]:
        data = self._known(self._directory.path(file))
        if data is None:
            raise MemGuardError(f"{file!r} is no forecast; list_forecasts names those there are")
        return data

    def _known(self, path: Path) -> dict[str, Any] | None:
        """What a file says, if it is a forecast."""
        try:
            if not path.is_file() or path.stat().st_size > _MOST_FILE_BYTES:
                return None
            data = json.loads(path.read_bytes())
        except (OSError, ValueError, RecursionError):
            return None
        return data if isinstance(data, dict) and data.keys() >= _KEYS else None


def _verdict(card: str, usable: int, allocated: int, needed: int) -> str:
    room = f"{format_bytes(usable)} for PyTorch on {card}"
    if needed <= usable:
        return f"It fits: {format_bytes(needed)} were reserved at most, of {room}."
    if allocated <= usable:
        return (
            f"It may fit, with little cached: {format_bytes(needed)} were reserved at most, but "
            f"{format_bytes(allocated)} allocated, of {room}."
        )
    return f"It does not fit: {format_bytes(allocated)} were allocated at the peak, of {room}."
