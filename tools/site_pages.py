"""What `mkdocs` shows beside docs/: the command line reference, made from the parsers, and files of the root."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # what is documented is this checkout's memguard

from memguard.cli import make_parser  # noqa: E402  (the path comes first)

OF_THE_ROOT = {
    "../CHANGELOG.md": "changelog.md",
    "../CONTRIBUTING.md": "contributing.md",
    "../SECURITY.md": "security.md",
}
"""Files beside docs/ that the site has as pages, as pages in docs/ link to them."""


def on_files(files: Any, config: Any) -> Any:
    """Adds the pages that no file in docs/ has."""
    from mkdocs.structure.files import File

    pages = {"command-line.md": command_line(), "examples.md": examples()}
    pages |= {name: to_the_root((ROOT / path[3:]).read_text()) for path, name in OF_THE_ROOT.items()}
    for name, text in pages.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Links that lead out of docs/ go to the site's own pages; other files of the repository are named, not linked."""
    depth = "../" * page.file.src_uri.count("/")
    markdown = markdown.replace(f"]({depth}../examples)", f"]({depth}examples.md)")
    for path, name in OF_THE_ROOT.items():
        markdown = markdown.replace(f"]({depth}{path})", f"]({depth}{name})")
    return re.sub(rf"\[([^\]]+)\]\({depth}\.\./(?!docs/)([^)#]+)\)", r"\1 (`\2` in the repository)", markdown)


def to_the_root(text: str) -> str:
    """A page of the repository's root as a page in docs/: links lose `docs/`, others name the file."""
    text = re.sub(r"\]\(docs/([^)]+)\)", r"](\1)", text)
    return re.sub(r"\[([^\]]+)\]\((?![a-z]+:|#)(?!(?:[\w-]+/)*[\w-]+\.md)([^)#]+)\)", r"\1 (`\2`)", text)


def command_line() -> str:
    """Every command with its options, as its parser has them."""
    parser = make_parser()
    commands = next(action for action in parser._actions if isinstance(action, argparse._SubParsersAction)).choices
    lines = ["# Command line", "", str(parser.description), ""]
    lines += ["This page is made from the commands' parsers; `memguard COMMAND --help` prints the same.", ""]
    for name, command in commands.items():
        lines += [
            f"## memguard {name}",
            "",
            str(command.description),
            "",
            "```",
            command.format_usage().strip(),
            "```",
            "",
        ]
        options = [action for action in command._actions if not isinstance(action, argparse._HelpAction)]
        if options:
            lines += ["| argument | meaning |", "|---|---|"]
            lines += [f"| {_spelling(action)} | {_meaning(action)} |" for action in options]
        lines += ["", *(["```", str(command.epilog), "```", ""] if command.epilog else [])]
    return "\n".join(lines)


def examples() -> str:
    """The programs in examples/."""
    lines = ["# Examples", "", "Complete programs. Each runs on the CPU in less than a minute.", ""]
    for path in sorted((ROOT / "examples").glob("*.py")):
        lines += [f"## {path.stem.replace('_', ' ')}", "", f"`examples/{path.name}`", "", "```python"]
        lines += [path.read_text().rstrip(), "```", ""]
    return "\n".join(lines)


def _spelling(action: argparse.Action) -> str:
    values = action.metavar or (
        "{" + ",".join(map(str, action.choices)) + "}" if action.choices else action.dest.upper()
    )
    value = " ".join(values) if isinstance(values, tuple) else str(values)
    if not action.option_strings:
        return f"`{value}`"
    return ", ".join(f"`{name}`" for name in action.option_strings) + ("" if action.nargs == 0 else f" `{value}`")


def _meaning(action: argparse.Action) -> str:
    text = (action.help or "") % {**vars(action), "prog": "memguard"}
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
