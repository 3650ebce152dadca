"""`MemGuard(forecast=True)`: a forecast from the first batch before it is trained on, then the truth beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

from memguard.errors import MemGuardError
from memguard.evidence.owners import Owners, count_owners
from memguard.forecast.forecasting import forecast_of
from memguard.forecast.lightning import lightning_made
from memguard.forecast.result import Forecast
from memguard.integrations.session import Session
from memguard.records.stats import BatchRecord, Stage
from memguard.report.forecast_text import forecast_text
from memguard.sinks.console import print_text
from memguard.text.units import format_bytes
from memguard.torch_objects.storages import unheard

_STEPS = 3
_WORTH_SAYING = 0.01
"""Share of the measured peak by which a forecast must be off for its owner to be looked for."""
_MOST_SECONDS = 120.0
"""A trace that takes longer is given up: the training waits for it."""


@final
class FirstForecast:
    """The forecast of one fit; made in a forked child, so nothing of the run changes.

    Args:
        session: Says and records it.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._forecast: Forecast | None = None
        self._batches_left = 0
        self._allocated = self._reserved = 0
        self._asked = False

    def before_batch(self, trainer: Any, module: Any, batch: Any) -> None:
        """The first call makes the forecast, from the batch that is about to be trained on."""
        if self._asked:
            return
        self._asked = True
        if self._session.recorder.run.rank:
            return
        try:
            found = self._made(trainer, module, batch)
        except (MemGuardError, ValueError) as error:
            print_text(f"memguard: no forecast of this training step: {error}")
            return
        self._forecast = found
        self._batches_left = _STEPS * trainer.accumulate_grad_batches
        print_text(f"memguard: forecast from the first batch\n{forecast_text(found)}")
        self._session.recorder.line("forecast", found.to_json())
        self._session.recorder.listeners.append(self._after_records)

    def _made(self, trainer: Any, module: Any, batch: Any) -> Forecast:
        kind = trainer.strategy.root_device.type
        given = self._session.options.device
        if kind not in ("cuda", "cpu"):
            raise MemGuardError(f"it knows CUDA's kernels and allocator, and this run is on {kind}")
        if trainer.world_size > 1:
            print_text("memguard: the forecast is of one process; the strategy's own buffers come on top")
        return forecast_of(
            lambda _: lightning_made(
                module,
                batch=batch,
                optimizers=list(trainer.optimizers),
                precision=str(trainer.precision),
                accumulate_grad_batches=trainer.accumulate_grad_batches,
                gradient_clip_val=trainer.gradient_clip_val,
                gradient_clip_algorithm=trainer.gradient_clip_algorithm,
            ),
            device=given.removeprefix("virtual:") if given.startswith("virtual:") else None,
            steps=_STEPS,
            suggest=False,
            timeout_seconds=_MOST_SECONDS,
        )

    def _after_records(self, records: Sequence[BatchRecord]) -> None:
        for record in records:
            self._after_record(record)

    def _after_record(self, record: BatchRecord) -> None:
        """When as many steps as were forecast are over, their measured peaks are put beside."""
        found = self._forecast
        if found is None or record.stage is not Stage.TRAIN:
            return
        self._allocated = max(self._allocated, record.allocated_peak_bytes or 0)
        self._reserved = max(self._reserved, record.reserved_peak_bytes or record.reserved_bytes or 0)
        self._batches_left -= 1
        if self._batches_left > 0:
            return
        self._forecast = None
        measured = {"allocated_peak_bytes": self._allocated or None, "reserved_peak_bytes": self._reserved or None}
        self._session.recorder.line("forecast_measured", measured)
        if not self._allocated:
            print_text("memguard: this device has no counters of allocated memory to compare the forecast with")
            return
        parts = [_beside("allocated", found.allocated_peak_bytes, self._allocated)]
        if self._reserved:
            parts.append(_beside("reserved", found.reserved_peak_bytes, self._reserved))
        parts += missed_text(found, self._allocated, self._owners())
        if self._session.options.device.startswith("virtual"):
            parts.append("the virtual GPU runs the CPU's kernels, which take no workspaces")
        print_text(f"memguard: forecast and truth after {_STEPS} optimizer steps: {'; '.join(parts)}")

    def _owners(self) -> Owners:
        """Whose the memory is that stays between batches."""
        watch, kind = self._session.watch, self._session.backend.device.partition(":")[0]
        with unheard():
            return count_owners(watch.models, watch.optimizers, device_type=kind if kind == "cuda" else None)


def missed_text(found: Forecast, allocated_bytes: int, owners: Owners) -> list[str]:
    """By which owner the forecast missed the measured peak, if it did by more than one per cent."""
    off = found.allocated_peak_bytes - allocated_bytes
    if abs(off) <= _WORTH_SAYING * allocated_bytes:
        return []
    told = {share.name: share.bytes for share in found.owners}
    held = {
        "parameters": owners.parameters_bytes,
        "optimizer states": owners.optimizer_bytes,
        "buffers": owners.buffers_bytes,
    }
    by_owner = {name: told.get(name, 0) - nbytes for name, nbytes in held.items()}
    rest = off - sum(by_owner.values())
    name = max(by_owner, key=lambda one: abs(by_owner[one]))
    if abs(by_owner[name]) < abs(rest):
        return [f"what differs most is activations, gradients and temporaries, {_signed(rest)}"]
    return [f"what differs most is {name}, {_signed(by_owner[name])}: {format_bytes(held[name])} measured"]


def _signed(nbytes: int) -> str:
    return f"{format_bytes(abs(nbytes))} too {'much' if nbytes > 0 else 'little'}"


def _beside(name: str, forecast_bytes: int, measured_bytes: int) -> str:
    error = 100 * (forecast_bytes / measured_bytes - 1)
    return f"{name} {format_bytes(forecast_bytes)} forecast, {format_bytes(measured_bytes)} measured ({error:+.1f} %)"
