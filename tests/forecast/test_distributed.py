import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from memguard.errors import MemGuardError
from memguard.forecast import forecast_of

GRADIENTS = 4 * (1024 * 1024 + 1024)


@pytest.mark.parametrize(("view", "more"), [(False, GRADIENTS), (True, 0)])
def test_buckets_are_counted(view, more):
    """DistributedDataParallel needs the gradients once more, unless they are views of the buckets; it says so."""

    def build(_, wrapped):
        model = nn.Linear(1024, 1024).cuda()
        if wrapped:
            torch.distributed.init_process_group("nccl")
            model = DistributedDataParallel(model, device_ids=[0], gradient_as_bucket_view=view)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)

        def step():
            optimizer.zero_grad()
            model(torch.randn(8, 1024, device="cuda")).sum().backward()
            optimizer.step()

        return model, optimizer, step

    plain, wrapped = (forecast_of(lambda b, w=w: build(b, w), device="1GiB", steps=1) for w in (False, True))
    assert wrapped.allocated_peak_bytes - plain.allocated_peak_bytes == pytest.approx(more, abs=1 << 20)
    assert any("DistributedDataParallel" in note for note in wrapped.notes)


def test_sharded_training_without_a_number_of_processes_says_that_it_needs_one():
    """FSDP shards by the number of ranks: the error says how to tell it."""
    from torch.distributed.fsdp import FullyShardedDataParallel

    def build(_):
        model = FullyShardedDataParallel(nn.Linear(8, 8).cuda())
        return model, None, lambda: None

    with pytest.raises(MemGuardError, match="--nproc 8"):
        forecast_of(build, device="1GiB")
