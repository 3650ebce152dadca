"""Whether the source limits what it fills, from the syntax tree alone."""

from pathlib import Path

import pytest

from memguard.probes.bounded import is_bounded

CACHES = {
    "if key not in store:\n            store[key] = make(key)": True,
    "hit = store.get(key)\n        if hit is None:\n            store[key] = make(key)": True,
    "try:\n            return store[key]\n        except KeyError:\n            store[key] = make(key)": True,
    "try:\n            return store[key]\n        except OSError:\n            store[key] = make(key)": False,
    "if key not in other:\n            store[key] = make(key)": False,
    "store[key] = make(key)": False,
}


@pytest.mark.parametrize("body", CACHES)
def test_a_cache_that_is_asked_first_is_limited_by_its_keys(body: str, tmp_path: Path) -> None:
    """Under whatever name the function knows it: a decorator's parameter, an attribute, the global itself."""
    file = tmp_path / "case.py"
    text = f"CACHE = {{}}\n\ndef memoized(store):\n    def inner(key):\n        {body}\n    return inner\n"
    file.write_text(text)
    line = next(n for n, line in enumerate(text.splitlines(), 1) if "store[key] = " in line)
    assert is_bounded(str(file), line, "CACHE") == CACHES[body]
