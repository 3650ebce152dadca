"""Every setting of memguard, in one place, checked when it is given."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from memguard.units import parse_bytes

Validation = Literal["guard", "warn", "off"]
Peaks = Literal["shared", "exclusive", "off"]

_CHOICES: dict[str, tuple[str, ...]] = {
    "validation": ("guard", "warn", "off"),
    "peaks": ("shared", "exclusive", "off"),
    "on_oom": ("report", "off"),
    "history": ("off", "auto", "always"),
}
_POLICIES = ("never", "validation", "epoch", "auto")
_DEVICES = "auto, cuda, cuda:N, xpu, mps, cpu, virtual:SIZE (as in virtual:24GiB)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The settings; the same names everywhere: `MemGuard`, `wrap`, `watch` and ``memguard run``.

    Raises:
        ValueError: A value is not one of the valid ones; the text names them.
        TypeError: A value is of the wrong type.
    """

    logdir: str | os.PathLike[str] | None = None
    """Where the recording goes. None: MEMGUARD_LOGDIR, else the logger's directory for this run, else
    memguard-runs/<time> in the Trainer's directory or the current one."""
    device: str = "auto"
    """The device to guard: "auto", "cuda:0", "xpu", "mps", "cpu" or "virtual:24GiB"."""
    validation: Validation = "guard"
    """"guard" runs validation forwards without a graph, "warn" only reports those that build one (MG201), "off"
    neither."""
    empty_cache: str | int = "never"
    """"never", "validation" (its edges), "epoch" (its end, where a Trainer tells it, or a `guard.batches` loop that
    makes optimizer steps runs out), a number (every N batches), "auto" (only when it would help)."""
    rules: tuple[str, ...] | None = None
    """Rule codes or names to select; None selects all."""
    ignore: tuple[str, ...] = ()
    """Rule codes or names to leave out."""
    log_every: int = 50
    """Batches per TensorBoard point; a point carries the window's maximum, so no spike is lost."""
    peaks: Peaks = "shared"
    """"shared" resets the device's peak counters for each batch, yet other readers keep getting their own answer;
    "exclusive" resets without that; "off" never resets."""
    on_oom: str = "report"
    """"report" explains an out-of-memory error, "off" does not."""
    history: str = "auto"
    """Allocation history, the stack of each allocation: "off", "auto" (a few batches, after growth is
    suspected, and without stacks while the device is nearly full and in pieces), "always" (a bounded ring)."""
    progress: bool = True
    """A short memory text in Lightning's progress bar and in `guard.batches`."""
    custom_scalars: bool = False
    """Arranges memguard's curves in TensorBoard's Custom Scalars tab; it replaces a layout of the user's own."""

    loggers: bool = False
    """Logs a few numbers and the findings to the loggers of the Trainer as well (W&B, MLflow, CSV), when it logs
    itself; Lightning and Hugging Face only."""

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            value = getattr(self, name)
            if value not in choices:
                raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}")
        if isinstance(self.empty_cache, bool) or not isinstance(self.empty_cache, (str, int)):
            raise TypeError(f"empty_cache must be a policy name or a number of batches, got {self.empty_cache!r}")
        if isinstance(self.empty_cache, int) and self.empty_cache < 1:
            raise ValueError(f"empty_cache as a number of batches must be at least 1, got {self.empty_cache}")
        if isinstance(self.empty_cache, str) and self.empty_cache not in _POLICIES:
            raise ValueError(
                f"empty_cache must be one of {', '.join(_POLICIES)} or a number of batches, got {self.empty_cache!r}"
            )
        if isinstance(self.log_every, bool) or not isinstance(self.log_every, int):
            raise TypeError(f"log_every must be a number of batches, got {self.log_every!r}")
        if self.log_every < 1:
            raise ValueError(f"log_every must be at least 1 batch, got {self.log_every}")
        for name in ("progress", "custom_scalars", "loggers"):
            if not isinstance(getattr(self, name), bool):
                raise TypeError(f"{name} must be True or False, got {getattr(self, name)!r}")
        for name in ("rules", "ignore"):
            object.__setattr__(self, name, _names(name, getattr(self, name)))
        _check_device(self.device)
        _check_logdir(self.logdir)

    @property
    def left_out(self) -> tuple[str, ...]:
        """Rules that do not judge: those that are ignored, and the one about validation where that is left alone."""
        return (*self.ignore, "MG201") if self.validation == "off" else self.ignore

    @classmethod
    def make(cls, *besides: str, **settings: Any) -> Options:
        """The options from keyword arguments.

        Args:
            *besides: What else the caller takes, for the text of the error.
            **settings: The options.

        Raises:
            TypeError: An option of an unknown name; the text names the valid ones.
        """
        known = [field.name for field in fields(cls)]
        for name in settings:
            if name == "forecast":
                raise TypeError(
                    "forecast=True works in MemGuard, where Lightning tells what a training step is; for a loop of "
                    "your own call memguard.forecast(step, model=model, optimizer=optimizer, device=...) before it"
                )
            if name not in known:
                raise TypeError(f"memguard has no option {name!r}; the options are {', '.join([*known, *besides])}")
        return cls(**settings)


def given_logdir(options: Options) -> Path | None:
    """The directory that the user named, in the settings or in MEMGUARD_LOGDIR; None where nobody did."""
    if options.logdir is not None:
        return Path(options.logdir)
    named = os.environ.get("MEMGUARD_LOGDIR")
    return Path(named) if named else None


def choose_logdir(
    options: Options, default: str | os.PathLike[str] | None, now: str, *, root: str | os.PathLike[str] = ""
) -> Path:
    """The directory of this run.

    Args:
        options: The settings; their logdir comes first.
        default: The host framework's own directory for this run, if it has one.
        now: The last part of ``memguard-runs/<now>``: the start time as text, or of a run of several processes a
            name on which all of them agree.
        root: Where ``memguard-runs`` lies.
    """
    given = given_logdir(options)
    if given is not None:
        return given
    return Path(default) if default is not None else Path(root) / "memguard-runs" / now


def disabled() -> bool:
    """Whether MEMGUARD_DISABLE asks for everything to be a no-op.

    Raises:
        ValueError: As `is_set`.
    """
    return is_set("MEMGUARD_DISABLE")


def is_set(variable: str) -> bool:
    """Whether a variable of the environment says yes.

    Raises:
        ValueError: It holds something else than 0, 1, true, false or nothing.
    """
    value = os.environ.get(variable, "")
    if value.lower() in ("", "0", "false"):
        return False
    if value.lower() in ("1", "true"):
        return True
    raise ValueError(f"{variable} must be 1 or 0 (or true, false), got {value!r}")


def _names(option: str, value: object) -> tuple[str, ...] | None:
    if value is None:
        return None if option == "rules" else ()
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    if isinstance(value, (list, tuple, set, frozenset)) and all(isinstance(part, str) for part in value):
        return tuple(value)
    raise TypeError(f"{option} must be rule codes or names, like ['MG101', 'eval-graph'], got {value!r}")


def _check_logdir(logdir: object) -> None:
    if logdir is None:
        return
    if not isinstance(logdir, (str, os.PathLike)):
        raise TypeError(f"logdir must be the path of a directory, got {logdir!r}")
    path = str(os.fspath(logdir))
    if not path or "://" in path:
        raise ValueError(f"logdir must be a local directory ('.' is the current one), got {path!r}")


def _check_device(device: object) -> None:
    if not isinstance(device, str):
        raise TypeError(f"device must be a text like 'cuda:0', got {device!r}; the valid ones are {_DEVICES}")
    kind, _, rest = device.partition(":")
    if kind == "virtual":
        try:
            parse_bytes(rest)
        except ValueError as error:
            raise ValueError(f"device {device!r}: {error}") from None
    elif kind in ("cuda", "xpu"):
        if (rest and not rest.isdigit()) or device.endswith(":"):
            raise ValueError(f"device {device!r} is not known; the valid ones are {_DEVICES}")
    elif device not in ("auto", "mps", "mps:0", "cpu"):
        raise ValueError(f"device {device!r} is not known; the valid ones are {_DEVICES}")
