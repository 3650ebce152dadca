"""What must look at live objects: graphs, storages, gradients, cycles, and who holds them."""

from __future__ import annotations

from memguard.probes.evaluation import EvaluationProbe
from memguard.probes.graphs import GraphsProbe
from memguard.probes.interface import Probe, Watch
from memguard.probes.marks import MarksProbe
from memguard.probes.panel import Probes
from memguard.probes.stem import StemProbe

PROBES: tuple[type[Probe], ...] = (MarksProbe, StemProbe, GraphsProbe, EvaluationProbe)
"""Every probe, in the order in which events reach them."""

__all__ = ["PROBES", "Probe", "Probes", "Watch"]
