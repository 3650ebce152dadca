"""A project's own defaults: ``memguard.toml``, or ``[tool.memguard]`` in ``pyproject.toml``, as for other tools."""

from __future__ import annotations

import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

from memguard.errors import MemGuardError
from memguard.options import Options, did_you_mean
from memguard.records.findings import Severity

_OWN = "memguard.toml"
_SHARED = "pyproject.toml"
SEVERITY = "severity"
"""The entry that is no option: what ``memguard report`` takes for --fail-on."""


def project_defaults(folder: Path | None = None) -> dict[str, Any]:
    """The defaults of the project that a directory belongs to.

    The nearest file wins: a ``memguard.toml``, or a ``pyproject.toml`` with a table ``[tool.memguard]``, in the
    directory itself or in one above it.

    Args:
        folder: The directory; None for the current one.

    Returns:
        Options by name, and perhaps "severity".

    Raises:
        MemGuardError: The file cannot be read, or has an entry that memguard does not know.
    """
    here = (folder or Path.cwd()).absolute()
    for place in (here, *here.parents):
        for name in (_OWN, _SHARED):
            path = place / name
            if not path.is_file():
                continue
            table: Any = _read(path)
            if name == _SHARED:
                table = table.get("tool", {}).get("memguard")
            if table is not None:
                return _checked(table, path)
    return {}


def _read(path: Path) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        if path.name == _SHARED:
            return {}  # whoever else reads it will say so
        raise MemGuardError(f"{path} cannot be read: {error}") from None


def _checked(table: object, path: Path) -> dict[str, Any]:
    if not isinstance(table, dict):
        raise MemGuardError(f"{path}: the defaults of memguard must be a table, got {table!r}")
    known = [*(field.name for field in fields(Options)), SEVERITY]
    checked = {str(name).replace("-", "_"): value for name, value in table.items()}
    for name in checked:
        if name not in known:
            near = did_you_mean(name, known)
            raise MemGuardError(f"{path}: there is no option {name!r}{near}; the options are {', '.join(known)}")
    severity = checked.get(SEVERITY)
    levels = [level.value for level in Severity]
    if severity is not None and severity not in levels:
        raise MemGuardError(f"{path}: severity must be one of {', '.join(levels)}, got {severity!r}")
    try:
        Options.make(**{name: value for name, value in checked.items() if name != SEVERITY})
    except (ValueError, TypeError) as error:
        raise MemGuardError(f"{path}: {error}") from None
    return checked
