import pytest

from memguard.forecast.cards import CARDS, find_card


def test_cards_have_distinct_names():
    """Every card is found by its name and by its title."""
    for card in CARDS:
        assert find_card(card.name) is card
        assert find_card(card.title) is card


def test_a_size_is_all_pytorchs():
    """From a bare amount of memory no context is taken off."""
    card = find_card("24GiB")
    assert card.total_bytes == card.usable_bytes == 24 << 30
    assert not card.exact_model


def test_short_names_are_understood():
    """h200, H200 and nvidia-h200 are one card."""
    assert find_card("h200") is find_card("H200") is find_card("nvidia-h200")


def test_unknown_cards_are_listed():
    """The error names the value and the known cards."""
    with pytest.raises(ValueError, match=r"'zx81' is neither .* nvidia-h200"):
        find_card("zx81")


@pytest.mark.parametrize("device", ["24", 24, "virtual:24"])
def test_a_bare_number_gets_advice(device):
    """Nobody's GPU has so few bytes: the error says what to write."""
    with pytest.raises(ValueError, match=r"'24' has no unit and would be 24 bytes; write it like 24GiB"):
        find_card(device)
