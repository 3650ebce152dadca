"""Numbers of the end are true: what a finding says of its holder beside an independent count."""

from __future__ import annotations

import pytest

from tests.corpus.runner import FOLDER, faulty
from tests.truth.kept_bytes import rows_of, table


def test_of_a_sample_the_bytes_of_the_end_are_true() -> None:
    """Within a tenth of what is let go when the holder is dropped."""
    rows = rows_of(FOLDER / "faulty/mg301_logits_kept.py")
    assert rows and all(row.is_near for row in rows), table(rows)


@pytest.mark.slow
def test_of_the_corpus_the_bytes_of_the_end_are_true() -> None:
    """In nineteen of twenty within a tenth; the table is printed."""
    rows = [row for path in faulty() if path.is_file() for row in rows_of(path)]
    print(table(rows))
    assert sum(row.is_near for row in rows) >= 0.95 * len(rows), table(rows)
