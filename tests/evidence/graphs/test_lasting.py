"""Whether tensors outlive the turn that made them."""

import torch

from memguard.evidence.kept.outputs import outlives_its_turn

ARCHIVE: list[torch.Tensor] = []


class Node:
    def __init__(self, state: torch.Tensor) -> None:
        self.state = state
        self.children: list[Node] = []

    def grow(self) -> bool:
        """As a search does: asked deep inside, where `self` is all that the frame knows."""
        self.children.append(Node(self.state.clone()))
        wanted = {id(child.state) for child in self.children}
        return outlives_its_turn(lambda tensor: id(tensor) in wanted)


def search(keep: list[Node]) -> bool:
    root = Node(torch.ones(2))
    keep.append(root)
    return root.grow()


def test_what_is_not_called_in_a_loop_lasts() -> None:
    """One search alone is as long as the run."""
    lasts = search([])
    assert lasts


def test_a_global_lasts() -> None:
    """Wherever the call stands."""
    for _ in range(1):
        ARCHIVE.append(torch.ones(3))
        assert _ask(ARCHIVE[0])
        ARCHIVE.clear()


def _ask(tensor: torch.Tensor) -> bool:
    return outlives_its_turn(lambda other: other is tensor)
