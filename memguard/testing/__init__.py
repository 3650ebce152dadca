"""Memory as a test: what a piece of training may use, checked on a virtual GPU, on any machine.

In pytest the fixture ``memguard_budget`` and the marker ``memguard`` do it; anywhere else `memory_budget`::

    from memguard.testing import memory_budget

    with memory_budget("20GiB", device="virtual:24GiB") as budget:
        train_three_steps()
    print(budget.allocated_peak_bytes)
"""

from __future__ import annotations

from memguard.testing.budget import MemoryBudget, MemoryBudgetExceeded, memory_budget

__all__ = ["MemoryBudget", "MemoryBudgetExceeded", "memory_budget"]
