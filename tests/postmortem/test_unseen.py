"""Programs on which nothing was calibrated, as people write them: 33 of them, and none knows of its judge.

When they were first run, before anything was changed for them, the report named the cause of 14 of the first 17 and 15
of the 16 that followed, and its first advice cured 11 and 14.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.evidence.loop import sees_saved_tensors
from tests.postmortem.unseen.trial import CASES, fail, try_out


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("ignore")
def test_unseen(name: str, tmp_path: Path) -> None:
    """The cause is named, the owners add up to what is allocated, and the first advice makes the run fit."""
    try_out(CASES[name], tmp_path)


@sees_saved_tensors
def test_a_table_of_which_batches_are_rows_is_no_activation(tmp_path: Path) -> None:
    """What graphs saved of a table on the device is a few rows: the table stays."""
    case = CASES["resident_table"]
    told = fail(case, tmp_path, "cpu", 1)
    table = 80_000 * 64 * 4
    assert told["owners"]["outputs"] >= table > told["owners"]["activations"]
