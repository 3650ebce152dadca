from __future__ import annotations

import pytest

from memguard.launch import read_launch

TORCHRUN = {
    "RANK": "3",
    "LOCAL_RANK": "1",
    "GROUP_RANK": "1",
    "WORLD_SIZE": "4",
    "MASTER_ADDR": "localhost",
    "MASTER_PORT": "40171",
    "TORCHELASTIC_RESTART_COUNT": "2",
    "TORCHELASTIC_RUN_ID": "61b422b9-5287-45b0-b429-8b9383a4d789",
}


def test_torchrun_tells_the_place() -> None:
    """Rank, node, restart, and a name for the run that is not made of anything of this process alone."""
    launch = read_launch(TORCHRUN)
    assert (launch.rank, launch.world_size, launch.local_rank, launch.node, launch.restart) == (3, 4, 1, "1", 2)
    assert launch.run == "torchrun-61b422b9"
    other = read_launch({**TORCHRUN, "RANK": "0", "LOCAL_RANK": "0", "GROUP_RANK": "0"})
    assert other.run == launch.run


@pytest.mark.parametrize(
    ("changed", "run"),
    [
        ({"TORCHELASTIC_RUN_ID": "my job/7"}, "torchrun-my-job-7"),
        ({"TORCHELASTIC_RUN_ID": "none"}, "ranks-localhost-40171"),
        ({"TORCHELASTIC_RUN_ID": "none", "SLURM_JOB_ID": "812", "SLURM_STEP_ID": "0"}, "job-812-0"),
        ({"TORCHELASTIC_RUN_ID": "", "PBS_JOBID": "5.head"}, "job-5.head"),
    ],
)
def test_the_run_has_a_name_on_which_all_agree(changed: dict[str, str], run: str) -> None:
    """It is torchrun's, the batch system's, or the address where the ranks meet, and always fit for a directory."""
    assert read_launch({**TORCHRUN, **changed}).run == run


def test_a_process_alone_has_no_run_and_no_node() -> None:
    """Its directory carries its start time, and the names of its files stay short."""
    launch = read_launch({"RANK": "0", "WORLD_SIZE": "1", "TORCHELASTIC_RUN_ID": "x", "GROUP_RANK": "0"})
    assert (launch.run, launch.node, launch.restart) == (None, None, 0)
    assert read_launch({"RANK": "?", "WORLD_SIZE": ""}).world_size == 1


def test_what_torch_distributed_tells_counts_more() -> None:
    """A program may number its processes itself (mp.spawn); without a launcher the node is the host's name."""
    launch = read_launch({"MASTER_ADDR": "a", "MASTER_PORT": "1"}, rank=5, world_size=8)
    assert (launch.rank, launch.world_size, launch.run) == (5, 8, "ranks-a-1")
    assert launch.node


@pytest.mark.parametrize(
    ("environment", "place", "run"),
    [
        (  # srun python train.py, requeued once
            {"SLURM_PROCID": "5", "SLURM_STEP_NUM_TASKS": "8", "SLURM_LOCALID": "1", "SLURM_NODEID": "1"}
            | {"SLURM_JOB_ID": "812", "SLURM_STEP_ID": "0", "SLURM_RESTART_COUNT": "1", "SLURM_NTASKS": "8"},
            (5, 8, 1, "1", 1),
            "job-812-0",
        ),
        (  # a task of an array, each of which has a number of its own besides
            {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2", "SLURM_LOCALID": "1", "SLURM_NODEID": "0"}
            | {"SLURM_JOB_ID": "815", "SLURM_STEP_ID": "0", "SLURM_ARRAY_JOB_ID": "812", "SLURM_ARRAY_TASK_ID": "3"},
            (1, 2, 1, "0", 0),
            "job-812_3-0",
        ),
        (  # srun torchrun: the agent's tasks are no ranks
            {**TORCHRUN, "SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2", "SLURM_JOB_ID": "812"},
            (3, 4, 1, "1", 2),
            "torchrun-61b422b9",
        ),
        (  # mpirun
            {"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "0"}
            | {"NODE_RANK": "1", "MASTER_ADDR": "a", "MASTER_PORT": "1"},
            (2, 4, 0, "1", 0),
            "ranks-a-1",
        ),
        (  # a pod of Kubeflow's PyTorchJob, one process in each
            {"RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "llama-master-0", "MASTER_PORT": "23456", "NODE_RANK": "1"},
            (1, 4, None, "1", 0),
            "ranks-llama-master-0-23456",
        ),
    ],
)
def test_each_launcher_tells_the_place(
    environment: dict[str, str], place: tuple[int, int, int | None, str, int], run: str
) -> None:
    """Rank, number of ranks, rank on the node, node and restart, and a name that a requeued job finds again."""
    launch = read_launch(environment)
    assert (launch.rank, launch.world_size, launch.local_rank, launch.node, launch.restart) == place
    assert launch.run == run


def test_a_batch_script_is_one_process() -> None:
    """SLURM tells it of the tasks that it may start; it is none of them."""
    launch = read_launch({"SLURM_JOB_ID": "812", "SLURM_NTASKS": "8", "SLURM_PROCID": "0", "SLURM_NODEID": "0"})
    assert (launch.rank, launch.world_size, launch.run) == (0, 1, None)
