"""PYTORCH_CUDA_ALLOC_CONF, as PyTorch 2.15 on the null GPU reads it."""

from __future__ import annotations

import pytest

from memguard.allocator import AllocatorConfig, CachingAllocator

MIB = 1 << 20


def test_empty_text_gives_the_defaults() -> None:
    """Nothing set is PyTorch's default: splitting, 20 MiB segments, no limit, no rounding."""
    config = AllocatorConfig.parse("")
    assert config == AllocatorConfig()
    assert config.large_segment_bytes == 20 * MIB
    assert config.max_split_bytes is None
    assert not config.expandable_segments


def test_keys_values_and_white_space() -> None:
    """Several keys, blanks anywhere, a comma at the end, and the last of two equal keys counts."""
    config = AllocatorConfig.parse(" max_split_size_mb : 100, expandable_segments:True ,max_split_size_mb:200,")
    assert config.max_split_bytes == 200 * MIB
    assert config.expandable_segments


@pytest.mark.parametrize(
    ("conf", "divisions"),
    [
        ("64", [64] * 16),
        ("[]", [0] * 16),
        ("[1:4]", [4] + [0] * 15),
        ("[>:4]", [0] + [4] * 15),
        ("[16:8,64:2,256:1,>:4]", [8, 8, 8, 8, 8, 0, 2, 0, 1] + [4] * 7),
        ("[16:8,>:4,32:2]", [8, 8, 8, 8, 8, 2] + [4] * 10),
        ("[64:4,16:2]", [4, 4, 4, 4, 2, 4, 4] + [0] * 9),
        ("[65536:4]", [4] * 16),
        ("[32768:4,>:8]", [4] * 16),
    ],
)
def test_roundup_divisions_fill_intervals_as_in_pytorch(conf: str, divisions: list[int]) -> None:
    """What lies below the first interval takes its value, gaps are off, '>' is everything above the last."""
    assert AllocatorConfig.parse(f"roundup_power2_divisions:{conf}").roundup_power2_divisions == tuple(divisions)


def test_older_pytorch_lets_the_rest_overwrite_the_last_interval() -> None:
    """Up to 2.9, '>' began at the last named interval itself."""
    conf = "roundup_power2_divisions:[16:8,256:1,>:4]"
    assert AllocatorConfig.parse(conf, "2.9.1+cu128").roundup_power2_divisions[8] == 4
    assert AllocatorConfig.parse(conf, "2.15.0").roundup_power2_divisions[8] == 1


@pytest.mark.parametrize(
    ("conf", "part"),
    [
        ("foo:1", "valid keys: backend, expandable_segments"),
        ("MAX_SPLIT_SIZE_MB:100", "unknown key 'MAX_SPLIT_SIZE_MB'"),
        ("max_split_size_mb:10", "at least 20, got '10'"),
        ("max_split_size_mb:x", "at least 20, got 'x'"),
        ("max_split_size_mb:1e3", "at least 20, got '1e3'"),
        ("max_split_size_mb:-1", "at least 20, got '-1'"),
        ("max_split_size_mb:50.5", "at least 20, got '50.5'"),
        ("max_split_size_mb:[1,2]", "at least 20, got '[1,2]'"),
        ("max_split_size_mb", "has no value"),
        ("max_split_size_mb:", "has no value"),
        ("max_split_size_mb:100,,expandable_segments:True", "',' where a key belongs"),
        ("max_split_size_mb:100 expandable_segments:True", "':' follows the value"),
        ("max_non_split_rounding_mb:10", "at least 20"),
        ("large_segment_size_mb:10", "greater than 10"),
        ("garbage_collection_threshold:1.5", "greater than 0.0 and less than 1.0, got 1.5"),
        ("garbage_collection_threshold:0", "greater than 0.0"),
        ("garbage_collection_threshold:nan", "greater than 0.0"),
        ("garbage_collection_threshold:abc", "got 'abc'"),
        ("per_process_memory_fraction:1.5", "from 0.0 to 1.0"),
        ("expandable_segments:true", "True or False"),
        ("expandable_segments:1", "True or False"),
        ("roundup_power2_divisions:3", "power of two"),
        ("roundup_power2_divisions:[3:4]", "got '3:4'"),
        ("roundup_power2_divisions:[16:8,32:3]", "got '32:3'"),
        ("roundup_power2_divisions:[16:8", "no closing bracket"),
        ("roundup_power2_divisions:[16]", "got '16'"),
        ("backend:cudaMallocAsync", "not modelled"),
        ("backend:x", "native"),
        ("pinned_num_register_threads:3", "power of two"),
        ("pinned_num_register_threads:256", "at most 128"),
        ("pinned_use_background_threads:1", "True or False"),
        ("expandable_segments_reserve:-3", "positive share"),
        ("expandable_segments_reserve:abc", "positive share"),
        ("expandable_segments_reserve_by_class:0.5", "a list like"),
        ("expandable_segments_reserve_by_class:[a:x]", "positive share"),
        (":", "where a key belongs"),
    ],
)
def test_what_pytorch_would_refuse_or_misread_is_refused(conf: str, part: str) -> None:
    """The error names the value, and what is valid."""
    with pytest.raises(
        ValueError, match=r"allocator configuration|must be|not modelled|no closing|follows|where"
    ) as info:
        CachingAllocator(1 << 30, conf)
    assert part in str(info.value)


@pytest.mark.parametrize(
    "conf",
    [
        "backend:native",
        "release_lock_on_cudamalloc:True",
        "release_lock_on_hipmalloc:False",
        "pinned_use_cuda_host_register:True,pinned_num_register_threads:8",
        "pinned_max_round_threshold_mb:1,pinned_max_cached_size_mb:1,pinned_reserve_segment_size_mb:10",
        "pinned_use_background_threads:True,pinned_free_catch_all:True",
        "expandable_segments_reserve_by_class:[decode:0.5,prefill:3G]",
    ],
)
def test_settings_of_the_host_change_nothing_on_the_device(conf: str) -> None:
    """Valid keys of pinned memory and locking are accepted."""
    assert AllocatorConfig.parse(conf) == AllocatorConfig()


@pytest.mark.parametrize(
    ("conf", "old", "new"),
    [
        ("per_process_memory_fraction:0.5", "2.9.1", "2.10"),
        ("throw_on_cudamalloc_oom:True", "2.9.1", "2.13.0"),
        ("expandable_segments_reserve:0.5", "2.14.1", "2.15.0"),
    ],
)
def test_keys_are_known_from_their_version_on(conf: str, old: str, new: str) -> None:
    """A key that the version does not know yet is refused with the version that does."""
    AllocatorConfig.parse(conf, new)
    with pytest.raises(ValueError, match="PyTorch knows it from 2"):
        AllocatorConfig.parse(conf, old)


def test_version_must_be_one() -> None:
    """A text that is no version is refused."""
    with pytest.raises(ValueError, match="'new' is not a version of PyTorch"):
        AllocatorConfig.parse("", "new")


@pytest.mark.parametrize(
    ("conf", "nbytes", "size"),
    [
        ("", 1, 512),
        ("", 512, 512),
        ("", 513, 1024),
        ("roundup_power2_divisions:4", 1200 * MIB, 1280 * MIB),
        ("roundup_power2_divisions:4", 1024 * MIB, 1024 * MIB),
        ("roundup_power2_divisions:4", 2048, 2048),
        ("roundup_power2_divisions:4", 2500, 2560),
        ("roundup_power2_divisions:1", 2500, 2560),
        ("roundup_power2_divisions:[256:1,>:4]", 200 * MIB + 1, 200 * MIB + 512),
        ("roundup_power2_divisions:[256:1,>:4]", 700 * MIB, 768 * MIB),
    ],
)
def test_sizes_round_up_to_the_next_step(conf: str, nbytes: int, size: int) -> None:
    """512 bytes, or the set number of steps between two powers of two."""
    assert AllocatorConfig.parse(conf).round_size(nbytes) == size


def test_reserve_is_a_share_or_a_size_and_never_above_the_default() -> None:
    """Addresses of an expandable segment: 9/8 of the device, or less where set."""
    total = 16 << 30
    assert AllocatorConfig().reserve_bytes(total) == 18 << 30
    assert AllocatorConfig.parse("expandable_segments_reserve:0.5").reserve_bytes(total) == 8 << 30
    assert AllocatorConfig.parse("expandable_segments_reserve:4G").reserve_bytes(total) == 4 << 30
    assert AllocatorConfig.parse("expandable_segments_reserve:400G").reserve_bytes(total) == 18 << 30
