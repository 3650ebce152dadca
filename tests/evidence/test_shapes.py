"""What a batch looks like: names, shapes and dtypes of its tensors."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch

from memguard.evidence import shapes
from memguard.evidence.shapes import describe_shapes

IMAGES, LABELS = torch.ones(2, 3, 4), torch.zeros(2, dtype=torch.int64)


@pytest.mark.parametrize(
    ("batch", "described"),
    [
        (IMAGES, (("", (2, 3, 4), "float32"),)),
        ((IMAGES,), (("0", (2, 3, 4), "float32"),)),
        ([IMAGES, LABELS], (("0", (2, 3, 4), "float32"), ("1", (2,), "int64"))),
        ({"x": IMAGES, "y": [LABELS, "name"]}, (("x", (2, 3, 4), "float32"), ("y.0", (2,), "int64"))),
        ([IMAGES, "name", LABELS], (("0", (2, 3, 4), "float32"), ("2", (2,), "int64"))),
        ([LABELS] * 20, tuple((str(position), (2,), "int64") for position in range(16))),
        ([], ()),
        (3, ()),
    ],
)
def test_batches_are_described(batch: object, described: object) -> None:
    """By position or key, the first time and the second; a tensor alone has no name."""
    assert describe_shapes(batch) == describe_shapes(batch) == described


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors_have_no_shape() -> None:
    """They are passed over, alone and in a list."""
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    assert describe_shapes(nested) == ()
    assert describe_shapes([nested, LABELS]) == (("1", (2,), "int64"),)


def test_what_is_known_holds_no_tensor_and_stays_small() -> None:
    """Descriptions are kept by shape and dtype, and no more of them than a table can have."""
    batch = [torch.ones(5), torch.ones(6)]
    gone = weakref.ref(batch[0])
    assert describe_shapes(batch) is describe_shapes([torch.zeros(5), torch.zeros(6)]), "the same object again"
    del batch
    gc.collect()
    assert gone() is None
    for length in range(shapes._MOST + 1):
        describe_shapes(torch.empty(length, 1))
    assert len(shapes._known) <= shapes._MOST
