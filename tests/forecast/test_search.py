from memguard.forecast.study import largest_fitting


def test_a_linear_need_is_found_in_few_trials():
    """Two trials give the line, two more confirm it."""
    tried = []

    def need(batch):
        tried.append(batch)
        nbytes = 1000 + 7 * batch
        return nbytes, nbytes <= 10_000

    assert largest_fitting(need, 8, 10_000) == 1285
    assert len(tried) <= 6


def test_nothing_fits():
    """Zero where one sample is too much."""
    assert largest_fitting(lambda batch: (10 * batch, False), 64, 5) == 0


def test_steps_in_the_need_are_overcome():
    """A need that grows by segments still ends at the edge."""

    def need(batch):
        nbytes = -(-batch * 333 // 2048) * 2048
        return nbytes, nbytes <= 50_000

    largest = largest_fitting(need, 1, 50_000)
    assert need(largest)[1] and not need(largest + 1)[1]
