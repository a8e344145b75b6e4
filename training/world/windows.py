"""Which windows to look at, by rules that a small model can learn, and what an overview or a window shows.

- A question that names a time t: `short_window`, from t - 2 to t + 3 s, five frames.
- A span to be found around a time t: `event_window`, from t - 5 to t + 6 s, which holds the whole event at t alone.
- Nothing named and nothing seen: `scan_windows`, adjacent windows of 16 s, where five of them cover the video.
"""

from collections.abc import Sequence

from paravt_infer.answers import TimeSpan
from paravt_infer.video.sampling import sample_times
from paravt_training.world.scene import Event, Scene

BUDGETS = (4, 8, 16, 32, 64)
"""Frames an overview may have: the set of nFrames Gating."""
FPS = 1.0
WINDOW_FRAMES = 16
MAX_CALLS = 5


def short_window(time: float, duration: float) -> TimeSpan:
    """The window that shows what is on screen at `time` seconds."""
    return max(0.0, float(time - 2)), float(min(duration, time + 3))


def event_window(time: float, duration: float) -> TimeSpan:
    """The window that shows from when to when the event at `time` seconds lasts."""
    return max(0.0, float(time - 5)), float(min(duration, time + 6))


def scan_windows(duration: float) -> list[TimeSpan]:
    """Windows that cover a whole video of at most 80 s; none for a longer one."""
    starts = range(0, int(duration), WINDOW_FRAMES)
    windows = [(float(start), min(float(duration), float(start + WINDOW_FRAMES))) for start in starts]
    return windows if len(windows) <= MAX_CALLS else []


def overview_times(duration: float, budget: int) -> list[float]:
    """Times of the overview's frames, as the engine samples them."""
    return sample_times(0, duration, fps=FPS, limit=budget)


def window_times(window: TimeSpan) -> list[float]:
    """Times of a window's frames, as the engine samples them."""
    return sample_times(*window, fps=FPS, limit=WINDOW_FRAMES)


def first_shown(event: Event, times: Sequence[float]) -> float | None:
    """The first of `times` at which the event is on screen."""
    return next((time for time in times if event.shown_at(time)), None)


def seen_by_overview(events: Sequence[Event], duration: float) -> dict[int, bool]:
    """For each budget, whether at least one frame of the overview shows each of the events."""
    times = {budget: overview_times(duration, budget) for budget in BUDGETS}
    return {budget: all(first_shown(e, times[budget]) is not None for e in events) for budget in BUDGETS}


def window_summary(scene: Scene, window: TimeSpan) -> str:
    """The correct summary of a sub-agent: each shape in the window's frames, with the first and last time it is seen.

    >>> star = Event(start=41, end=46, shape="star", colour="red")
    >>> window_summary(Scene(seed=0, duration=60, background="grey", events=(star,)), (40.0, 45.0))
    'a red star from 41.0 to 44.0 s.'
    """
    times = window_times(window)
    sentences = []
    for event in scene.events:
        shown = [time for time in times if event.shown_at(time)]
        if shown:
            sentences.append(f"a {event.name} from {shown[0]:.1f} to {shown[-1]:.1f} s.")
    return " ".join(sentences) or "nothing but the background."
