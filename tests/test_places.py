from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from memguard.text.places import place_text

KERNEL = "/tmp/ipykernel_4242/1234567.py"


def test_a_place_is_told_by_the_name_of_its_file() -> None:
    """Or by its path, and without a line where none is known."""
    assert place_text("/home/me/train.py", 41) == "train.py:41"
    assert place_text("/home/me/train.py", None) == "train.py"
    assert place_text("/home/me/train.py", 41, whole=True) == "/home/me/train.py:41"


def test_a_cell_is_told_as_ipython_tells_it() -> None:
    """Its number stands in the name under which it was compiled."""
    assert place_text("<ipython-input-2-4f0f8e8fc7c4>", 5) == "Cell In[2], line 5"
    assert place_text("<ipython-input-12-4f0f8e8fc7c4>", None, whole=True) == "Cell In[12]"


def test_a_kernels_own_file_is_told_as_the_cell_that_its_shell_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    """IPython is asked only where the program has loaded it; else the file's name is all there is."""
    monkeypatch.delitem(sys.modules, "IPython.core.getipython", raising=False)
    assert place_text(KERNEL, 3) == "1234567.py:3"
    cells = {KERNEL: ("Cell", "In[7]")}
    for shell, told in (
        (SimpleNamespace(compile=SimpleNamespace(format_code_name=cells.get)), "Cell In[7], line 3"),
        (SimpleNamespace(compile=SimpleNamespace(format_code_name={}.get)), "1234567.py:3"),
        (None, "1234567.py:3"),
    ):
        module = SimpleNamespace(get_ipython=lambda shell=shell: shell)
        monkeypatch.setitem(sys.modules, "IPython.core.getipython", module)
        assert place_text(KERNEL, 3) == told
