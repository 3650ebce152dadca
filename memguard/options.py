"""Every option of memguard, in one place, checked when it is given."""

from __future__ import annotations

import difflib
import functools
import importlib.util
import inspect
import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, TypedDict, TypeVar, get_type_hints

from memguard.text.units import parse_bytes
from memguard.text.urls import check_url, is_url, join

Validation = Literal["guard", "warn", "off"]
Peaks = Literal["shared", "exclusive", "off"]
OnOom = Literal["report", "off"]
History = Literal["off", "auto", "always"]
Export = Literal["otlp", "prometheus"]
CallableT = TypeVar("CallableT", bound=Callable[..., Any])

_CHOICES: dict[str, tuple[str, ...]] = {
    "validation": ("guard", "warn", "off"),
    "peaks": ("shared", "exclusive", "off"),
    "on_oom": ("report", "off"),
    "history": ("off", "auto", "always"),
}
_EXPORTERS = {
    "otlp": ("opentelemetry.sdk.metrics", "opentelemetry.exporter.otlp.proto"),
    "prometheus": ("opentelemetry.sdk.metrics", "opentelemetry.exporter.prometheus"),
}
"""What each kind of export needs."""
_POLICIES = ("never", "validation", "epoch", "auto")
_DEVICES = "auto, cuda, cuda:N, xpu, mps, cpu, virtual:SIZE (as in virtual:24GiB)"


class OptionValues(TypedDict, total=False):
    """The options as keyword arguments, for type checkers and editors; `Options` documents them."""

    logdir: str | os.PathLike[str] | None
    device: str
    validation: Validation
    empty_cache: str | int
    rules: Iterable[str] | str | None
    ignore: Iterable[str] | str
    log_every: int
    peaks: Peaks
    on_oom: OnOom
    history: History
    source: bool
    progress: bool
    custom_scalars: bool
    loggers: bool
    export: Export | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The settings; the same names everywhere: `MemGuard`, `wrap`, `watch` and ``memguard run``.

    Attributes:
        logdir: Directory of the recording, a path or a URL of fsspec's ("s3://bucket/run"); by default MEMGUARD_LOGDIR,
            else the logger's directory for this run, else memguard-runs/<time> in the Trainer's directory or the
            current one.
        device: The device to guard: "auto", "cuda:0", "xpu", "mps", "cpu" or "virtual:24GiB".
        validation: "guard" runs validation forwards without a graph, "warn" only reports those that build one (MG201),
            "off" does neither.
        empty_cache: When to empty PyTorch's cache: "never", "validation" (before and after it), "epoch" (at its end), a
            number (every N batches), or "auto" (only where it would help).
        rules: Rule codes or names to select, as a list or with commas; all by default.
        ignore: Rule codes or names to leave out, as a list or with commas.
        log_every: Batches per TensorBoard point; a point carries the window's maximum, so no spike is lost.
        peaks: "shared" resets the device's peak counters for each batch while other readers keep getting their own
            answer; "exclusive" resets without that; "off" never resets.
        on_oom: "report" explains an out-of-memory error, "off" does not.
        history: Allocation history, the stack of each allocation: "off", "auto" (a few batches, after growth is
            suspected, and without stacks while the device is nearly full and in pieces), "always" (a bounded ring).
        source: Whether the recording keeps five lines of code around each finding's line, for the Memory tab.
        progress: Whether Lightning's progress bar and `guard.batches` show a short memory text.
        custom_scalars: Whether to arrange memguard's curves in TensorBoard's Custom Scalars tab; it replaces a layout
            of your own.
        loggers: Whether to log a few numbers and the findings to the Trainer's other loggers (W&B, MLflow, CSV) when it
            logs itself; Lightning and Hugging Face only.
        export: Where every rank sends its metrics and findings too: "otlp" (an OpenTelemetry collector, named by
            OTEL_EXPORTER_OTLP_ENDPOINT) or "prometheus" (pulled from one port a node).

    Raises:
        ValueError: A value is not one of the valid ones, which the text names, or needs a package that is not here.
        TypeError: A value is of the wrong type.
    """

    logdir: str | os.PathLike[str] | None = None
    device: str = "auto"
    validation: Validation = "guard"
    empty_cache: str | int = "never"
    rules: tuple[str, ...] | None = None
    ignore: tuple[str, ...] = ()
    log_every: int = 50
    peaks: Peaks = "shared"
    on_oom: OnOom = "report"
    history: History = "auto"
    source: bool = True
    progress: bool = True
    custom_scalars: bool = False
    loggers: bool = False
    export: Export | None = None

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
        for name in ("source", "progress", "custom_scalars", "loggers"):
            if not isinstance(getattr(self, name), bool):
                raise TypeError(f"{name} must be True or False, got {getattr(self, name)!r}")
        for name in ("rules", "ignore"):
            object.__setattr__(self, name, _names(name, getattr(self, name)))
        _check_device(self.device)
        _check_logdir(self.logdir)
        _check_export(self.export)

    @property
    def left_out(self) -> tuple[str, ...]:
        """Rules that do not judge: those that are ignored, and the one about validation where that is left alone."""
        return (*self.ignore, "MG201") if self.validation == "off" else self.ignore

    @classmethod
    def make(cls, *others: str, **settings: Any) -> Options:
        """The options from keyword arguments.

        Args:
            *others: Further arguments of the caller, for the text of the error.
            **settings: The options.

        Raises:
            TypeError: An option of an unknown name; the text names the valid ones.
        """
        if "forecast" in settings:
            raise TypeError(
                "forecast=True works in MemGuard, where Lightning defines the training step; for a loop of "
                "your own call memguard.forecast(step, model=model, optimizer=optimizer, device=...) before it"
            )
        check_names(settings, [*(field.name for field in fields(cls)), *others])
        return cls(**settings)


def lists_options(function: CallableT) -> CallableT:
    """Shows every option, with its default and its meaning, in the signature and docstring of what takes ``**options``.

    Args:
        function: A function, or a class, whose docstring has an entry ``**options`` among its arguments.
    """
    taker: Any = function.__init__ if isinstance(function, type) else function  # type: ignore[misc]
    signature = inspect.signature(taker)
    types = get_type_hints(OptionValues)
    shown = [each for each in signature.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
    shown += [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=types[field.name]
        )
        for field in fields(Options)
    ]
    taker.__signature__ = signature.replace(parameters=shown)
    entry = re.search(r"^ *\*\*options: [^\n]*$", function.__doc__ or "", re.MULTILINE)
    if function.__doc__ and entry is not None:
        indent = entry[0][: -len(entry[0].lstrip())]
        lines = [f"{indent}{line}" for line in _documented().splitlines()]
        function.__doc__ = function.__doc__.replace(entry[0], "\n".join(lines))
    return function


def meanings() -> dict[str, str]:
    """What each option means, as `Options` documents it, on one line; empty under ``python -OO``."""
    entries = re.findall(r"^(\w+): (.*(?:\n .*)*)", _documented(), re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in entries}


def _documented() -> str:
    """The part of the docstring of `Options` that is about the options, without its indent."""
    found = re.search(r"Attributes:\n(.*?)\n\n", Options.__doc__ or "", re.DOTALL)
    return inspect.cleandoc(found[1]) if found is not None else ""


def suggests_names(function: CallableT) -> CallableT:
    """Answers a misspelt keyword argument with the nearest one and all valid ones, in place of Python's own error."""
    valid = [name for name in inspect.signature(function).parameters if name != "self"]

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        check_names(kwargs, valid)
        return function(*args, **kwargs)

    return checked  # type: ignore[return-value]


def check_names(given: Iterable[str], valid: Sequence[str]) -> None:
    """Whether all names of options are valid.

    Raises:
        TypeError: One is not valid; the text names the nearest, and all that are.
    """
    for name in given:
        if name not in valid:
            near = f"{did_you_mean(name, valid).strip(' ()')} ".lstrip()
            raise TypeError(f"{near}memguard has no option {name!r}; the options are {', '.join(valid)}")


def did_you_mean(name: str, valid: Iterable[str]) -> str:
    """Like ``" (did you mean 'logdir'?)"``; empty where nothing valid is near."""
    close = difflib.get_close_matches(name, list(valid), 1, cutoff=0.6)
    return f" (did you mean {close[0]!r}?)" if close else ""


def given_logdir(options: Options) -> str | None:
    """The directory that the user named, in the settings or in MEMGUARD_LOGDIR; None where nobody did.

    Raises:
        ValueError: MEMGUARD_LOGDIR is a URL that fsspec cannot reach from here.
    """
    given = options.logdir if options.logdir is not None else os.environ.get("MEMGUARD_LOGDIR")
    if not given:
        return None
    if not is_url(given):
        return str(Path(given))
    check_url(os.fspath(given))
    return os.fspath(given)


def choose_logdir(
    options: Options, default: str | os.PathLike[str] | None, now: str, *, root: str | os.PathLike[str] = ""
) -> str:
    """The directory of this run, a path or a URL.

    Args:
        options: The settings; their logdir comes first.
        default: The host framework's own directory for this run, if it has one.
        now: The last part of ``memguard-runs/<now>``: the start time as text, or of a run of several processes a
            name on which all of them agree.
        root: Where ``memguard-runs`` lies.

    Raises:
        ValueError: As `given_logdir`.
    """
    given = given_logdir(options)
    if given is not None:
        return given
    if default is not None:
        return os.fspath(default)
    if is_url(root):
        return join(os.fspath(root), "memguard-runs", now)
    return str(Path(root) / "memguard-runs" / now)


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
        raise TypeError(f"logdir must be the path of a directory, or a URL, got {logdir!r}")
    path = str(os.fspath(logdir))
    if not path:
        raise ValueError("logdir must be a directory ('.' is the current one) or a URL, got ''")
    if is_url(path):
        try:
            check_url(path)
        except ValueError as error:
            raise ValueError(f"logdir {error}") from None


def _check_export(export: object) -> None:
    if export is None:
        return
    if not isinstance(export, str) or export not in _EXPORTERS:
        raise ValueError(f"export must be one of {', '.join(_EXPORTERS)} or None, got {export!r}")
    for package in _EXPORTERS[export]:
        try:
            found = importlib.util.find_spec(package) is not None
        except ModuleNotFoundError:  # a package that it lies in
            found = False
        if not found:
            raise ValueError(
                f"export={export!r} needs OpenTelemetry's SDK, which is not installed: "
                "pip install 'torch-memguard[otel]'"
            )


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
        near = did_you_mean(kind, ("auto", "cuda", "xpu", "mps", "cpu", "virtual"))
        raise ValueError(f"device {device!r} is not known{near}; the valid ones are {_DEVICES}")
