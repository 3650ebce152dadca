import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from lightning.pytorch import Trainer
from lightning.pytorch.demos.boring_classes import BoringModel
from lightning.pytorch.loggers import CSVLogger

import memguard
from memguard.recording.reader import Recording, find_recordings

SUITE = Path(__file__).with_name("lightning_suite.py")


def run_suite(folder: Path, name: str, **environment: str) -> list[list[object]]:
    """Runs the suite in a process of its own; what its tests remembered."""
    results = folder / f"{name}.jsonl"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "0", "-x", "--noconftest", "-p", "no:cacheprovider", str(SUITE)],
        cwd=SUITE.parents[2],
        env={**os.environ, "OMP_NUM_THREADS": "1", "SUITE_RESULTS": str(results), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    return [json.loads(line) for line in results.read_text().splitlines()]


@pytest.mark.slow
def test_a_suite_of_lightning_tests_does_not_notice_memguard(tmp_path: Path) -> None:
    """MEMGUARD=1 puts a MemGuard into every Trainer; each loss, weight, metric, file and exception is as without.

    Both with a directory of its own and with none, where it may leave files only beside a logger's.
    """
    plain = run_suite(tmp_path, "plain")
    runs = tmp_path / "runs"
    beside = run_suite(tmp_path, "beside", MEMGUARD="1")
    guarded = run_suite(tmp_path, "guarded", MEMGUARD="1", MEMGUARD_LOGDIR=str(runs))
    assert len(plain) >= 100
    for other in (beside, guarded):
        assert [kept[0] for kept, same in zip(plain, other, strict=True) if kept != same] == []
    recordings = [Recording.open(path) for path in find_recordings(runs)]
    assert len(recordings) >= 55 and all(recording.end is not None for recording in recordings)


class Asked(CSVLogger):
    """Counts who asks where it writes: the first to ask fixes the version, and on several ranks it is broadcast."""

    times = 0

    @property
    def log_dir(self) -> str:
        self.times += 1
        return super().log_dir


@pytest.mark.filterwarnings("ignore")
def test_in_a_suite_the_guard_asks_no_logger_where_it_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test may count how often its logger is asked for the directory: as often as without memguard."""
    times = []
    for value in ("0", "1"):
        monkeypatch.setenv("MEMGUARD", value)
        trainer = Trainer(
            logger=Asked(tmp_path), max_steps=1, limit_val_batches=0, accelerator="cpu",
            enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        )  # fmt: skip
        trainer.fit(BoringModel())
        times.append((any(isinstance(each, memguard.MemGuard) for each in trainer.callbacks), trainer.logger.times))
    assert times == [(False, times[0][1]), (True, times[0][1])] and times[0][1]


@pytest.mark.parametrize("variable", ["MEMGUARD", "MEMGUARD_DISABLE"])
def test_a_misspelt_variable_is_answered(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a program without a MemGuard of its own too."""
    monkeypatch.setenv(variable, "yes")
    with pytest.raises(ValueError, match=f"{variable} must be 1 or 0 .* got 'yes'"):
        Trainer(logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
