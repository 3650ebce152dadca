"""The page's modules as one script, for the report in one file: browsers import no modules from a disk."""

from __future__ import annotations

import re
from pathlib import Path

_IMPORT = re.compile(r'^import (\{[^}]*\}|\w+) from "\./([\w./]+)";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?:async )?(?:function|class|const) (\w+)", re.MULTILINE)
_DEFAULT = re.compile(r"^export default (\w+);$", re.MULTILINE)


def bundle(folder: Path, entry: str) -> str:
    """One script that does what importing a module does; each module keeps a scope of its own.

    Args:
        folder: Where the modules lie; they import each other as ``import { a, b } from "./x.js";`` on one line.
        entry: The file name of the module to begin with.
    """
    done: dict[str, str] = {}
    _add(folder, entry, done)
    return '"use strict";\n' + "\n".join(done.values())


def _add(folder: Path, name: str, done: dict[str, str]) -> None:
    """Adds a module after those that it imports."""
    text = (folder / name).read_text(encoding="utf-8")
    for _, other in _IMPORT.findall(text):
        if other not in done:
            _add(folder, other, done)
    names = _EXPORT.findall(text) + [f"default: {each}" for each in _DEFAULT.findall(text)]
    text = _DEFAULT.sub("", _IMPORT.sub(_take, text))
    text = re.sub(r"^export (?=(?:async )?(?:function|class|const) )", "", text, flags=re.MULTILINE)
    done[name] = f"const {_variable(name)} = (() => {{\n{text}\nreturn {{ {', '.join(names)} }};\n}})();"


def _take(match: re.Match[str]) -> str:
    wanted = match[1] if match[1].startswith("{") else f"{{ default: {match[1]} }}"
    return f"const {wanted} = {_variable(match[2])};"


def _variable(name: str) -> str:
    return "module_" + re.sub(r"\W", "_", name)
