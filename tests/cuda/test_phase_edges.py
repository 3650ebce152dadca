"""The cache at the edges of phases, where another process is on the device."""

import os

import pytest

from tests.cuda.test_cuda_backend import run

PROGRAM = """
    import time
    import torch, memguard

    net = torch.nn.Linear(256, 256).cuda()
    last = time.perf_counter() + 4
    with memguard.watch(net, empty_cache="auto", quiet=True, logdir="{logdir}") as guard:
        left = 0
        while time.perf_counter() < last:
            with memguard.phase("update"):
                large = torch.empty(6 * 2**30, dtype=torch.uint8, device="cuda")
                net(torch.randn(32, 256, device="cuda")).sum().backward()
                del large
            left = torch.cuda.memory_reserved()
            if left < 2**30:
                break
    acts = [finding for finding in guard.findings if finding.code == "MG002"]
    print(left < 2**30, len(acts) > 0)
"""


@pytest.mark.parametrize(("others", "acts"), [("16G", True), ("0", False)])
def test_auto_gives_the_cache_back_where_a_phase_ends_and_somebody_else_is_there(tmp_path, others, acts):
    """An engine with 16 of 24 GiB takes turns with the training, which caches nearly all the rest."""
    pytest.importorskip("pynvml")
    if "nullgpu" not in os.environ.get("LD_LIBRARY_PATH", ""):
        pytest.skip("needs a device whose other processes are known")
    total = "24G" if acts else "7G"
    told = run(PROGRAM.format(logdir=tmp_path), NULLGPU_OTHER=others, NULLGPU_TOTAL=total)
    assert told.split() == [str(acts), str(acts)]
