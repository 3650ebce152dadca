from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "out-of-memory.md"


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exceptions carry notes from 3.11 on")
def test_the_page_shows_what_its_program_says(tmp_path: Path) -> None:
    """The report shown in the documentation is the one that its program gets, the path of its file aside."""
    text = PAGE.read_text()
    program, shown = (
        re.search(r"```python\n(.*?)```", text, re.DOTALL),
        re.search(r"```\n(memguard: out.*?)```", text, re.DOTALL),
    )
    assert program is not None and shown is not None
    told = "    import traceback; traceback.print_exc()\n"
    (tmp_path / "train.py").write_text(program[1].replace("    pass\n", told))
    variables = {**os.environ, "COLUMNS": "120", "PYTHONPATH": str(PAGE.parents[1]), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "train.py"],
        cwd=tmp_path,
        env=variables,
        capture_output=True,
        text=True,
        check=True,
    )
    expected, _, _ = shown[1].partition("  The whole report:")
    assert expected in done.stderr
