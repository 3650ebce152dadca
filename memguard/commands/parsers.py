"""How every sub-command's parser is made: what it does, its options, and a few lines to copy."""

from __future__ import annotations

import argparse
from typing import Any, Final, final

_EXAMPLES: Final = "examples:"


def add_parser(
    subparsers: argparse._SubParsersAction[Any],
    name: str,
    help_line: str,
    description: str,
    *examples: str,
    usage: str | None = None,
) -> argparse.ArgumentParser:
    """A new sub-command's parser.

    Args:
        subparsers: Where it goes.
        name: The command.
        help_line: What ``memguard --help`` says of it.
        description: What its own help begins with.
        *examples: Whole command lines, shown at the end of its help.
        usage: The line of usage, where argparse's own would be of no use.
    """
    parser: argparse.ArgumentParser = subparsers.add_parser(
        name,
        help=help_line,
        description=description,
        usage=usage,
        epilog=epilog(*examples) if examples else None,
        formatter_class=HelpFormatter,
        allow_abbrev=False,
    )
    parser.set_defaults(parser=parser)
    return parser


@final
class HelpFormatter(argparse.HelpFormatter):
    """Folds what is said to the width of the terminal, and leaves examples as they are."""

    def add_argument(self, action: argparse.Action) -> None:
        """Measures the longest name; argparse forgets that commands are indented, and gives the longest two lines."""
        super().add_argument(action)
        if isinstance(action, argparse._SubParsersAction):
            self._action_max_length += self._indent_increment

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if text.startswith(_EXAMPLES) else super()._fill_text(text, width, indent)


def epilog(*examples: str) -> str:
    """The end of a help text."""
    return "\n".join([_EXAMPLES, *(f"  {example}" for example in examples)])
