"""A state that a model makes from itself."""

import sys

import pytest
from torch import nn

from memguard.evidence.graphs.graph_holders import is_filled_by_model
from memguard.records.facts import Place


@pytest.mark.parametrize(
    ("place", "filled"),
    [
        (Place(file=__file__, line=1, function="Layer.forward", source="self.k = cat(self.k, k)"), True),
        (Place(file=__file__, line=1, function="Cache.extend", caller_function="Layer.forward"), True),
        (Place(file=__file__, line=1, function="write", source="logits = model(token, cache)"), True),
        (Place(file=__file__, line=1, function="write", source="logits, cache = model(token, cache)"), True),
        (Place(file=__file__, line=1, function="write", source="kept = torch.cat([kept, logits])"), False),
        (Place(file=__file__, line=1, function="write", source="kept = model.name"), False),
        (Place(file=__file__, line=1, function="write"), False),
    ],
)
def test_what_the_models_own_forward_keeps_is_filled_by_it(place: Place, filled: bool) -> None:
    """Where the forward runs, where it calls what keeps, or where it is called."""
    model = nn.Linear(2, 2)
    assert model.training and is_filled_by_model(place, [sys._getframe()]) is filled
