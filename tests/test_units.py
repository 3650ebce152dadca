import pytest

from memguard.text.units import format_bytes, parse_bytes


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (1536, "1.50 KiB"),
        (24 * 1024**3, "24.0 GiB"),
        (None, "unknown"),
        (-2048, "-2.00 KiB"),
        (150_016, "146 KiB"),  # 146.5: a half goes to the even number, as it does in the Memory tab
    ],
)
def test_sizes_are_written_in_binary_units(nbytes: int | None, text: str) -> None:
    """A size has a binary unit and about three figures; None is unknown."""
    assert format_bytes(nbytes) == text


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("24GiB", 24 * 1024**3),
        ("512 MiB", 512 * 1024**2),
        ("80g", 80 * 1024**3),
        ("1000000", 10**6),
        ("24GB", 24 * 1024**3),
        ("7B", 7),
        ("1.5K", 1536),
    ],
)
def test_sizes_are_read_with_powers_of_1024(text: str, nbytes: int) -> None:
    """Units are powers of 1024, with or without iB, in any case."""
    assert parse_bytes(text) == nbytes


@pytest.mark.parametrize("text", ["", "24", "80000", "GiB", "-1GiB", "0", "1 2", "many", "1XB", "nan"])
def test_what_is_no_size_is_refused_by_its_text(text: str) -> None:
    """The error names the text."""
    with pytest.raises(ValueError, match="size"):
        parse_bytes(text)
