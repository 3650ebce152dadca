from __future__ import annotations

import torch

from memguard.probes.naming.passed_over import passed_over
from memguard.probes.naming.walk import Link, Walk
from memguard.probes.objects import Via


def test_what_a_sample_left_out_is_passed_over() -> None:
    """Of a list of pairs too long to be read whole every tensor is either met or passed over; a short one is read."""
    long, short = [(torch.zeros(1), torch.zeros(1)) for _ in range(100)], [torch.zeros(1) for _ in range(5)]
    links: list[Link] = []
    walk = Walk(lambda kind: issubclass(kind, torch.Tensor), links.append)
    walk.run([Link(long, Via.ROOT), Link(short, Via.ROOT)])
    met, others = {id(link.value) for link in links}, [id(tensor) for tensor in passed_over(links)]
    assert len(met) < 100
    assert len(others) == len(set(others))
    assert met | set(others) == {id(tensor) for pair in long for tensor in pair} | {id(tensor) for tensor in short}
    assert met.isdisjoint(others)
