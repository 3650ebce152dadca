"""Whether a loop's variable has the last turn's value for nothing, while the statement that sets it anew runs."""

import textwrap
from pathlib import Path

import pytest

from memguard.source.model import SourceModel
from memguard.source.reads import is_being_set

UNREAD = {
    "alone": """
        for batch in batches:
            probs = step(batch)
            show(probs)
        """,
    "one of several": """
        for batch in batches:
            loss, probs = step(
                batch,
            )
            show(probs)
        """,
}
WANTED = {
    "by the call": """
        for batch in batches:
            loss, probs = step(batch, probs)
        """,
    "further up": """
        for batch in batches:
            show(probs)
            loss, probs = step(batch)
        """,
    "after the loop": """
        for batch in batches:
            loss, probs = step(batch)
        show(probs)
        """,
    "in no loop": """
        loss, probs = step(batch)
        show(probs)
        """,
    "of a part": """
        for batch in batches:
            loss, probs[0] = step(batch)
        """,
}


def at_the_call(program: str, tmp_path: Path) -> bool:
    path = tmp_path / "program.py"
    path.write_text("def main(batches, show, step, probs=None):\n" + textwrap.indent(textwrap.dedent(program), "    "))
    source = SourceModel.of(str(path))
    line = next(
        number for number, text in enumerate(path.read_text().splitlines(), 1) if "step(" in text and number > 1
    )
    return is_being_set(source.scope_of(1, "main"), str(path), line, "probs")


@pytest.mark.parametrize("case", UNREAD)
def test_what_the_running_statement_sets_anew_is_the_last_turns(case: str, tmp_path: Path) -> None:
    """Nobody reads it before."""
    assert at_the_call(UNREAD[case], tmp_path)


@pytest.mark.parametrize("case", WANTED)
def test_what_is_read_before_or_later_is_wanted(case: str, tmp_path: Path) -> None:
    """Or it is no loop's."""
    assert not at_the_call(WANTED[case], tmp_path)
