"""Which moments are looked at, and at what size a frame is."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paravt_infer.errors import SettingsError
from paravt_infer.video.sampling import FrameSizing, sample_times

SECONDS = st.floats(0, 20_000, allow_nan=False)
RATES = st.sampled_from([0.1, 0.5, 1.0, 2.0, 4.0, 29.97])
SIDES = st.integers(1, 8192)
MULTIPLES = st.sampled_from([28, 32])


def test_a_short_span_is_looked_at_once_a_second() -> None:
    assert sample_times(0, 5, fps=1, limit=64) == [0, 1, 2, 3, 4]
    assert sample_times(12.5, 15.5, fps=1, limit=16) == [12.5, 13.5, 14.5]
    assert sample_times(0, 2, fps=2, limit=64) == [0, 0.5, 1, 1.5]


def test_a_last_second_that_is_not_whole_counts() -> None:
    assert sample_times(0, 3.2, fps=1, limit=64) == [0, 1, 2, 3]


def test_a_long_span_is_thinned_evenly_over_the_seconds() -> None:
    overview = sample_times(0, 600, fps=1, limit=64)
    assert overview == [round(n * 599 / 63) for n in range(64)]
    assert overview[:4] == [0, 10, 19, 29]
    assert overview[-1] == 599

    window = sample_times(100, 160, fps=1, limit=16)
    assert window == [100 + round(n * 59 / 15) for n in range(16)]
    assert window[-1] == 159


def test_exactly_the_limit_is_not_thinned() -> None:
    assert sample_times(0, 16, fps=1, limit=16) == list(range(16))


@pytest.mark.parametrize(("start", "end"), [(7, 7.001), (7, 7), (7, 6), (7, 8)])
def test_a_span_of_a_second_or_less_gives_its_start(start: float, end: float) -> None:
    assert sample_times(start, end, fps=1, limit=16) == [7]


def test_one_moment_is_the_middle_one() -> None:
    assert sample_times(0, 9, fps=1, limit=1) == [4]
    assert sample_times(0, 0.5, fps=1, limit=1) == [0]


@pytest.mark.parametrize(("fps", "limit"), [(0, 16), (-1, 16), (math.nan, 16), (1, 0)])
def test_no_frames_at_all_is_a_wrong_setting(fps: float, limit: int) -> None:
    with pytest.raises(SettingsError, match="at least 1 and fps above 0"):
        sample_times(0, 10, fps=fps, limit=limit)


@given(SECONDS, st.floats(0.01, 20_000), RATES, st.integers(1, 64))
def test_moments_ascend_within_the_span_and_the_limit(start: float, length: float, fps: float, limit: int) -> None:
    moments = sample_times(start, start + length, fps=fps, limit=limit)
    assert 1 <= len(moments) <= limit
    assert moments == sorted(set(moments))
    assert moments[0] >= start
    assert moments[-1] < start + length
    assert len(moments) == min(limit, max(1, math.ceil(length * fps - 1e-6)))


@pytest.mark.parametrize(
    ("width", "height", "multiple", "fitted"),
    [
        (640, 360, 32, (288, 160)),
        (640, 360, 28, (280, 168)),
        (360, 640, 32, (160, 288)),
        (1920, 1080, 28, (280, 168)),
        (192, 128, 32, (192, 128)),
        (224, 224, 28, (224, 224)),
        (10, 10, 28, (28, 28)),
        (10, 10, 32, (32, 32)),
    ],
)
def test_a_frame_is_fitted_to(width: int, height: int, multiple: int, fitted: tuple[int, int]) -> None:
    assert FrameSizing(multiple=multiple).fit(width, height) == fitted


def test_the_bounds_may_be_others() -> None:
    assert FrameSizing(multiple=32, min_pixels=65536, max_pixels=65536).fit(100, 100) == (256, 256)
    assert FrameSizing(multiple=28, max_pixels=200704).fit(1920, 1080) == (588, 336)


@given(SIDES, SIDES, MULTIPLES)
def test_every_size_is_within_the_bounds(width: int, height: int, multiple: int) -> None:
    wide, high = FrameSizing(multiple=multiple).fit(width, height)
    assert wide % multiple == high % multiple == 0
    assert 784 <= wide * high <= 50176


@given(st.integers(256, 8192), st.floats(0.4, 2.5), MULTIPLES)
def test_a_picture_keeps_its_shape_but_for_two_steps_of_the_grid(width: int, shape: float, multiple: int) -> None:
    height = max(200, round(width * shape))
    wide, high = FrameSizing(multiple=multiple).fit(width, height)
    scale = min(1.0, math.sqrt(50176 / (width * height)))
    assert abs(wide - width * scale) <= 2 * multiple
    assert abs(high - height * scale) <= 2 * multiple


@given(SIDES, SIDES, MULTIPLES)
def test_a_fitted_size_stays_as_it_is(width: int, height: int, multiple: int) -> None:
    sizing = FrameSizing(multiple=multiple)
    assert sizing.fit(*sizing.fit(width, height)) == sizing.fit(width, height)


@pytest.mark.parametrize(("width", "height"), [(1, 8192), (8192, 1), (100_000, 3), (1, 1)])
def test_extreme_shapes_are_fitted_too(width: int, height: int) -> None:
    wide, high = FrameSizing(multiple=28).fit(width, height)
    assert 784 <= wide * high <= 50176
    assert (wide >= high) == (width >= height)


def test_a_frame_without_a_size_is_refused() -> None:
    with pytest.raises(SettingsError, match="0x100 pixels has no size"):
        FrameSizing(multiple=28).fit(0, 100)


def test_a_frame_costs_one_token_for_each_square_of_the_grid() -> None:
    assert FrameSizing(multiple=32).tokens(288, 160) == 9 * 5
    assert FrameSizing(multiple=28).tokens(280, 168) == 10 * 6
