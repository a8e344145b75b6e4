"""Which windows to look at, by rules that a small model can learn; and what an overview or a window shows.

- A question that names a time t: `near(t)`, from t - 2 to t + 3 s: five frames.
- A span to be found around a time t: `around(t)`, from t - 5 to t + 6 s: any event that t lies in, whole, and no other.
- Nothing named and nothing seen: `scan`, windows of 16 s side by side, where five of them hold the whole video.
"""

from collections.abc import Sequence

from paravt_infer.video.sampling import sample_times
from paravt_training.world.scene import Event, Scene

Span = tuple[float, float]
"""[start, end] in seconds."""

BUDGETS = (4, 8, 16, 32, 64)
"""Frames an overview may have: the set of nFrames Gating."""
FPS = 1.0
WINDOW_FRAMES = 16
MAX_CALLS = 5


def near(time: float, duration: float) -> Span:
    """The window in which to see what is on screen at `time` seconds."""
    return max(0.0, float(time - 2)), float(min(duration, time + 3))


def around(time: float, duration: float) -> Span:
    """The window in which to see from when to when the event at `time` seconds lasts."""
    return max(0.0, float(time - 5)), float(min(duration, time + 6))


def scan(duration: float) -> list[Span]:
    """Windows that show all of a video of at most 80 s; none for a longer one."""
    starts = range(0, int(duration), WINDOW_FRAMES)
    spans = [(float(start), min(float(duration), float(start + WINDOW_FRAMES))) for start in starts]
    return spans if len(spans) <= MAX_CALLS else []


def overview_times(duration: float, budget: int) -> list[float]:
    """Times of the overview's frames, as the engine takes them."""
    return sample_times(0, duration, fps=FPS, limit=budget)


def window_times(window: Span) -> list[float]:
    """Times of a window's frames, as the engine takes them."""
    return sample_times(*window, fps=FPS, limit=WINDOW_FRAMES)


def first_shown(event: Event, times: Sequence[float]) -> float | None:
    """The first of `times` at which the event is on screen."""
    return next((time for time in times if event.shown_at(time)), None)


def seen_by_overview(events: Sequence[Event], duration: float) -> dict[int, bool]:
    """For each budget, whether at least one frame of the overview shows each of the events."""
    times = {budget: overview_times(duration, budget) for budget in BUDGETS}
    return {budget: all(first_shown(e, times[budget]) is not None for e in events) for budget in BUDGETS}


def summary(scene: Scene, window: Span) -> str:
    """What a window's frames show, as a sub-agent says it: each shape with the first and last time it is seen.

    >>> star = Event(start=41, end=46, shape="star", colour="red")
    >>> summary(Scene(seed=0, duration=60, background="grey", events=(star,)), (40.0, 45.0))
    'a red star from 41.0 to 44.0 s.'
    """
    times = window_times(window)
    said = []
    for event in scene.events:
        shown = [time for time in times if event.shown_at(time)]
        if shown:
            said.append(f"a {event.name} from {shown[0]:.1f} to {shown[-1]:.1f} s.")
    return " ".join(said) or "nothing but the background."
