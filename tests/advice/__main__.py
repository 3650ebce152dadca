"""``python -m tests.advice [--corpus] [NAME...]``: prints the table."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.advice.trial import of_the_corpus, programs, score, table


def main() -> None:
    names = sys.argv[1:]
    chosen = of_the_corpus() if "--corpus" in names else programs()
    names = [name for name in names if name != "--corpus"]
    chosen = [path for path in chosen if not names or path.stem in names]
    with tempfile.TemporaryDirectory() as folder:
        scores = []
        for path in chosen:
            scores.append(found := score(path, Path(folder) / path.stem))
            print(table([found]).splitlines()[1], flush=True)
            if not found.fits:
                print("    ", found.text, flush=True)
    print(table(scores))


if __name__ == "__main__":
    main()
