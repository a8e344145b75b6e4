"""Questions about scenes with their right answers: multiple choice, open-ended and temporal grounding.

Every question has a number: (seed, split, number) name it, in every process. Consecutive numbers ask of one
scene, and run through `FORMS`, so that any stretch of questions is balanced over them.
"""

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count as naturals
from itertools import permutations, product
from pathlib import Path
from typing import Literal

from paravt_infer.questions import Question, letter_options
from paravt_infer.times import format_time
from paravt_training.world.scene import BACKGROUNDS, COLOURS, SHAPES, Event, Scene, seed_of
from paravt_training.world.windows import Span, scan, seen_by_overview

Split = Literal["train", "rl", "test"]
SPLITS: tuple[Split, ...] = ("train", "rl", "test")
Kind = Literal["choice", "open", "grounding"]

TEST_SEED = 2026
TEST_COUNT = 500
"""The fixed test set is `question_set(TEST_SEED, "test", TEST_COUNT)`: described by these two, never stored."""
PER_SCENE = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class WorldQuestion:
    """A question, its right answer, and where in its scene the evidence is."""

    question: Question
    """As the engine takes it. Its video is `folder`/`video_name(scene)`."""
    answer: str
    """The right option's letter, a few words, or `[start, end]` in seconds."""
    type: str
    """What is asked, such as `pair_at`: a key of `TYPES`."""
    scene: Scene
    """What the video shows."""
    times: tuple[int, ...]
    """Seconds that the question or its options name, in their order."""
    events: tuple[Event, ...]
    """The evidence: the events that must be seen to answer. None where any frame shows the answer."""
    seen_by_overview: dict[int, bool]
    """Budget to whether at least one frame of the overview shows each of `events`."""

    @property
    def windows(self) -> tuple[Span, ...]:
        """Where the evidence is, in seconds."""
        return tuple((event.start, event.end) for event in self.events)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Draft:
    """A question before it has a form."""

    fills: tuple[str, ...]
    """What the wording's places hold."""
    right: str
    wrong: Sequence[str] = ()
    """Three other options, and perhaps one more. No option can be told from the others by their words alone."""
    times: tuple[int, ...] = ()
    events: tuple[Event, ...] = ()


def _named(scene: Scene, draw: random.Random, count: int) -> tuple[list[Event], tuple[int, ...]]:
    """Different events, and a time inside each, a second or more from its borders."""
    events = draw.sample(scene.events, count)
    return events, tuple(draw.randint(int(event.start) + 1, int(event.end) - 1) for event in events)


def _other(draw: random.Random, among: Iterable[str], *values: str) -> str:
    return draw.choice([one for one in among if one not in values])


def _like(draw: random.Random, event: Event, *values: str) -> str:
    """Another shape of the event's colour, or its shape in another colour, but none of `values`."""
    alike = [f"{event.colour} {shape}" for shape in SHAPES] + [f"{colour} {event.shape}" for colour in COLOURS]
    return _other(draw, alike, event.name, *values)


def _what_at(scene: Scene, draw: random.Random) -> _Draft:
    (event,), times = _named(scene, draw, 1)
    colours, shapes = (
        (event.colour, _other(draw, COLOURS, event.colour)),
        (event.shape, _other(draw, SHAPES, event.shape)),
    )
    right, *wrong = [f"{colour} {shape}" for colour in colours for shape in shapes]
    wrong += [_other(draw, [f"{colour} {shape}" for colour in COLOURS for shape in SHAPES], right, *wrong)]
    return _Draft(fills=_clocks(times), right=right, wrong=wrong, times=times, events=(event,))


def _colour_at(scene: Scene, draw: random.Random) -> _Draft:
    (event,), times = _named(scene, draw, 1)
    return _Draft(fills=_clocks(times), right=event.colour, times=times, events=(event,))


def _pair_at(scene: Scene, draw: random.Random) -> _Draft | None:
    if len(scene.events) < 2:
        return None
    pair, times = _named(scene, draw, 2)
    a, b = pair[0].name, pair[1].name
    c = _like(draw, pair[0], b)
    d = _like(draw, pair[1], a, c)
    right, *wrong = draw.choice([[(a, b), (a, d), (c, b), (c, d)], [(a, b), (b, a), (c, d), (d, c)]])
    wrong += [draw.choice([one for one in permutations((a, b, c, d), 2) if one not in (right, *wrong)])]
    return _Draft(
        fills=_clocks(times), right=", ".join(right), wrong=list(map(", ".join, wrong)), times=times, events=tuple(pair)
    )


def _colours_at(scene: Scene, draw: random.Random) -> _Draft | None:
    if len(scene.events) < 3:
        return None
    events, times = _named(scene, draw, 3)
    x, y, z = right = tuple(event.colour for event in events)
    if len(set(right)) == 3 and draw.random() < 0.5:
        wrong = draw.sample([one for one in permutations(right) if one != right], 4)
    else:
        v, w = _other(draw, COLOURS, x), _other(draw, COLOURS, z)
        wrong = [(v, y, z), (x, y, w), (v, y, w)]
        wrong += [draw.choice([one for one in product((x, v), COLOURS, (z, w)) if one not in (right, *wrong)])]
    return _Draft(
        fills=_clocks(times),
        right=", ".join(right),
        wrong=list(map(", ".join, wrong)),
        times=times,
        events=tuple(events),
    )


def _same_colour(scene: Scene, draw: random.Random) -> _Draft | None:
    same = draw.random() < 0.5
    pairs = [pair for pair in permutations(scene.events, 2) if (pair[0].colour == pair[1].colour) == same]
    if not pairs:
        return None
    pair = draw.choice(pairs)
    times = tuple(draw.randint(int(event.start) + 1, int(event.end) - 1) for event in pair)
    one, two = pair[0].colour, pair[1].colour
    two = _other(draw, COLOURS, one) if same else two
    texts = [f"yes, both are {one}", f"no, {one} and {two}", f"yes, both are {two}", f"no, {two} and {one}"]
    right = texts.pop(0 if same else 1)
    return _Draft(fills=_clocks(times), right=right, wrong=texts, times=times, events=pair)


def _which_time(scene: Scene, draw: random.Random) -> _Draft | None:
    if len(scene.events) < 4:
        return None
    events, times = _named(scene, draw, 4)
    right, *wrong = _clocks(times)
    return _Draft(fills=(events[0].name,), right=right, wrong=wrong, times=times, events=(events[0],))


def _first_of(scene: Scene, draw: random.Random) -> _Draft | None:
    if len(scene.events) < 4 or not scan(scene.duration):
        return None  # it names no time: it is asked only where a scan can show the answer
    picked = sorted(draw.sample(scene.events, 4), key=lambda event: event.start)
    first, *others = (event.name for event in picked)
    return _Draft(fills=(), right=first, wrong=draw.sample(others, 3), events=tuple(picked))


def _background(scene: Scene, draw: random.Random) -> _Draft:
    wrong = [name for name in BACKGROUNDS if name != scene.background]
    return _Draft(fills=(), right=scene.background, wrong=wrong)


def _span(event: Event) -> str:
    return f"[{event.start:.1f}, {event.end:.1f}]"


def _span_at(scene: Scene, draw: random.Random) -> _Draft:
    (event,), times = _named(scene, draw, 1)
    return _Draft(fills=_clocks(times), right=_span(event), times=times, events=(event,))


def _span_of(scene: Scene, draw: random.Random) -> _Draft | None:
    if not scan(scene.duration):
        return None
    event = draw.choice(scene.events)
    return _Draft(fills=(event.name,), right=_span(event), events=(event,))


def _clocks(times: Sequence[int]) -> tuple[str, ...]:
    return tuple(format_time(time) for time in times)


TYPES: dict[str, tuple[Callable[[Scene, random.Random], _Draft | None], tuple[str, ...]]] = {
    "what_at": (_what_at, ("What is seen at {0}?", "Which shape is on screen at {0}?")),
    "colour_at": (_colour_at, ("Which colour is seen at {0}?", "What is the colour of the shape at {0}?")),
    "pair_at": (
        _pair_at,
        ("What is seen at {0} and at {1}, in this order?", "Which shapes are on screen at {0} and {1}, in this order?"),
    ),
    "colours_at": (
        _colours_at,
        (
            "Which colours are seen at {0}, {1} and {2}, in this order?",
            "What are the colours of the shapes at {0}, {1} and {2}, in this order?",
        ),
    ),
    "same_colour": (
        _same_colour,
        ("Is the same colour seen at {0} and at {1}?", "Are the shapes at {0} and {1} of the same colour?"),
    ),
    "which_time": (
        _which_time,
        ("At which of these times is a {0} seen?", "At which of these times is a {0} on screen?"),
    ),
    "first_of": (_first_of, ("Which of these is seen first?", "Which of these is on screen first?")),
    "background": (_background, ("Which colour is the background?", "What is the colour of the background?")),
    "span_at": (
        _span_at,
        ("From when to when is the shape at {0} seen?", "From when to when is the shape at {0} on screen?"),
    ),
    "span_of": (_span_of, ("From when to when is a {0} seen?", "From when to when is a {0} on screen?")),
}
"""What can be asked: how a draft is made, and its wordings."""

FORMS: tuple[tuple[str, Kind], ...] = (
    ("what_at", "choice"), ("pair_at", "choice"), ("span_at", "grounding"), ("which_time", "choice"),
    ("pair_at", "open"), ("same_colour", "choice"), ("colours_at", "choice"), ("what_at", "open"),
    ("colour_at", "open"), ("background", "choice"), ("first_of", "choice"), ("span_of", "grounding"),
    ("span_at", "grounding"), ("colours_at", "open"), ("background", "open"),
)  # fmt: skip
"""Type and kind of the questions 0, 1, 2, ... of every set, again and again. The last five share a short video."""


def ask(
    scene: Scene, type: str, kind: Kind, draw: random.Random, *, id: str = "", folder: str = ""
) -> WorldQuestion | None:
    """A question of this type and kind about `scene`; None where the scene has not what it needs.

    Raises:
        KeyError: no such type.
    """
    make, wordings = TYPES[type]
    draft = make(scene, draw)
    if draft is None:
        return None
    text, times, answer, options = draw.choice(wordings).format(*draft.fills), draft.times, draft.right, {}
    if kind == "choice":
        texts = [draft.right, *draft.wrong[: draw.choice((3, 4))]]
        draw.shuffle(texts)
        options = letter_options(texts)
        answer = next(letter for letter, option in options.items() if option == draft.right)
        if type == "which_time":  # the options are the times, in an order of their own
            times = tuple(sorted(times, key=lambda time: texts.index(format_time(time))))
    video = str(Path(folder) / video_name(scene))
    return WorldQuestion(
        question=Question(video=video, text=text, options=options, kind=kind, id=id),
        answer=answer,
        type=type,
        scene=scene,
        times=times,
        events=draft.events,
        seen_by_overview=seen_by_overview(draft.events, scene.duration),
    )


def video_name(scene: Scene) -> str:
    """The file name of a scene's video."""
    return f"scene-{scene.seed}.mp4"


def scene_seed(split: Split, *names: object) -> int:
    """A scene's seed. No seed of one split is one of another: the split is its remainder."""
    return seed_of("world", split, *names) * len(SPLITS) + SPLITS.index(split)


def question_at(seed: int, split: Split, number: int, *, per_scene: int = PER_SCENE, folder: str = "") -> WorldQuestion:
    """Question `number` of a set: the same whoever asks, and however many others were asked before.

    Args:
        per_scene: how many consecutive questions ask of one scene; another number makes another set.
        folder: where the videos are, for `Question.video`.
    """
    return _group(seed, split, number // per_scene, per_scene, folder)[number % per_scene]


@lru_cache(maxsize=64)
def _group(seed: int, split: Split, group: int, per_scene: int, folder: str) -> list[WorldQuestion]:
    """The questions of one scene: the first one drawn of which all of their forms can be asked."""
    first = group * per_scene
    for attempt in naturals():
        scene = Scene.from_seed(scene_seed(split, seed, group, attempt))
        asked = []
        for number in range(first, first + per_scene):
            draw = random.Random(seed_of("question", scene.seed, number))
            one = ask(scene, *FORMS[number % len(FORMS)], draw, id=f"{split}-{seed}-{number}", folder=folder)
            if one is None:
                break
            asked.append(one)
        if len(asked) == per_scene:
            return asked
    raise AssertionError("unreachable")


def question_stream(
    seed: int, split: Split, count: int, *, per_scene: int = PER_SCENE, folder: str = ""
) -> Iterator[WorldQuestion]:
    """Questions 0 to `count` - 1 of a set, one after the other."""
    return (question_at(seed, split, number, per_scene=per_scene, folder=folder) for number in range(count))


def question_set(
    seed: int, split: Split, count: int, *, per_scene: int = PER_SCENE, folder: str = ""
) -> list[WorldQuestion]:
    """`count` questions of a split, balanced over `FORMS`; `count` / `per_scene` videos hold them.

    >>> question_set(0, "train", 2)[0].question.id
    'train-0-0'
    """
    return list(question_stream(seed, split, count, per_scene=per_scene, folder=folder))


def fixed_test_set(folder: str = "") -> list[WorldQuestion]:
    """The fixed test set: 500 questions about 100 videos."""
    return question_set(TEST_SEED, "test", TEST_COUNT, folder=folder)
