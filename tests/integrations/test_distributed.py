import json
import os
import subprocess
import sys
from pathlib import Path

from memguard.recording.reader import Recording, find_recordings

PROGRAM = Path(__file__).with_name("distributed_program.py")


def test_ranks_train_the_same_with_the_same_collectives(tmp_path: Path) -> None:
    """DDP and FSDP2: losses bit-identical, not one collective more, a recording for each rank."""
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    ranks = []
    for rank in range(2):
        command = [sys.executable, "-W", "ignore", str(PROGRAM), str(rank), str(tmp_path / "store"), str(tmp_path)]
        kept = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        ranks.append(subprocess.Popen(command, env={**env, "RANK": str(rank)}, **kept))  # type: ignore[call-overload]
    told = [process.communicate(timeout=240) for process in ranks]
    assert [process.returncode for process in ranks] == [0, 0], [err for _, err in told]
    for rank in (json.loads(out.strip().splitlines()[-1]) for out, _ in told):
        for plain, guarded in rank.values():
            assert guarded == plain and len(plain["losses"]) == 14
    for kind in ("ddp", "fsdp"):
        recordings = [Recording.open(path) for path in find_recordings(tmp_path / kind)]
        assert [recording.session["rank"] for recording in recordings] == [0, 1]
        assert [len(recording) for recording in recordings] == [14, 14]
