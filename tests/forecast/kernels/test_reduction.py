from memguard.forecast.kernels.reduction import reduction_scratch


def scratch(shape, dims, **changes):
    strides, step = [], 1
    for size in reversed(shape):
        strides.insert(0, step)
        step *= size
    options = {"itemsize": 4, "accumulator_bytes": 4, "multiprocessors": 132, "threads_per_multiprocessor": 2048}
    return reduction_scratch(shape, strides, dims, **{**options, **changes})


def test_bias_gradient_takes_what_cuda_took():
    """Sums over 1024 rows: 2 MiB for 256 columns, 8 MiB for 1024, as in the real allocator's history."""
    assert scratch((1024, 256), [0]) == (2097152, 8)
    assert scratch((1024, 1024), [0]) == (8388608, 32)


def test_short_reductions_take_nothing():
    """A reduction that one block does alone needs no memory of its own."""
    assert scratch((64, 256), [0]) == (0, 0)
    assert scratch((4096, 64), [1]) == (0, 0)
