"""What memguard reads from a program's text."""

import ast

from memguard.source.model import SourceModel


def model_of(text: str) -> SourceModel:
    """The model of a file with some text."""
    return SourceModel("case.py", text.splitlines(keepends=True), ast.parse(text))
