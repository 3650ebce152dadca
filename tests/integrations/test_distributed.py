import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from memguard.recording import Recording, find_recordings

PROGRAM = Path(__file__).with_name("distributed_program.py")


def run(kind: str, folder: Path, logdir: str) -> list[dict[str, Any]]:
    """Both ranks' results."""
    root = str(Path(__file__).parents[2])
    ranks = []
    for rank in range(2):
        env = {**os.environ, "PYTHONPATH": root, "RANK": str(rank), "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-W", "ignore", str(PROGRAM), kind, str(rank), str(folder / "store"), logdir]
        ranks.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env))
    told = [process.communicate(timeout=240) for process in ranks]
    assert [process.returncode for process in ranks] == [0, 0], [err for _, err in told]
    return [json.loads(out.strip().splitlines()[-1]) for out, _ in told]


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_ranks_train_the_same_with_the_same_collectives(kind: str, tmp_path: Path) -> None:
    """Losses bit-identical, not one collective more, a recording for each rank."""
    (tmp_path / "plain").mkdir()
    (tmp_path / "guarded").mkdir()
    plain = run(kind, tmp_path / "plain", "-")
    guarded = run(kind, tmp_path / "guarded", str(tmp_path / "log"))
    assert guarded == plain
    recordings = [Recording.open(path) for path in find_recordings(tmp_path / "log")]
    assert [recording.session["rank"] for recording in recordings] == [0, 1]
    assert [len(recording) for recording in recordings] == [14, 14]
