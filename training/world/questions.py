"""Questions about scenes with their correct answers: multiple choice, open-ended and temporal grounding.

(seed, split, number) identify a question, in every process. Consecutive numbers share a scene and run through
`QUESTION_CYCLE`, so that any stretch of questions is balanced over types and kinds.
"""

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count as naturals
from itertools import permutations, product
from pathlib import Path
from typing import Literal

from paravt_infer.questions import Question, letter_options
from paravt_infer.times import format_time
from paravt_training.world.scene import BACKGROUNDS, COLOURS, SHAPES, Event, Scene, stable_seed
from paravt_training.world.windows import scan_windows, seen_by_overview

Split = Literal["train", "rl", "test"]
SPLITS: tuple[Split, ...] = ("train", "rl", "test")
Kind = Literal["choice", "open", "grounding"]

TEST_SEED = 2026
TEST_COUNT = 500
"""The fixed test set is `question_set(TEST_SEED, "test", TEST_COUNT)`: generated, never stored."""
PER_SCENE = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class WorldQuestion:
    """A question, its correct answer, and where in its scene the evidence is."""

    question: Question
    """As the engine takes it; its video is `folder`/`video_name(scene)`."""
    answer: str
    """The letter of the correct option, a few words, or `[start, end]` in seconds."""
    type: str
    """A key of `QUESTION_TYPES`, such as `pair_at`."""
    scene: Scene
    """What the video shows."""
    times: tuple[int, ...]
    """Seconds that the question or its options name, in order."""
    events: tuple[Event, ...]
    """The evidence: the events that must be seen to answer; empty where any frame shows the answer."""
    seen_by_overview: dict[int, bool]
    """For each budget, whether at least one frame of the overview shows each of `events`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _QuestionDraft:
    """A question before it is multiple choice or open."""

    values: tuple[str, ...]
    """Values of the wording's placeholders."""
    right: str
    wrong: Sequence[str] = ()
    """Three or four other options; the words of the options alone do not give the right one away."""
    times: tuple[int, ...] = ()
    events: tuple[Event, ...] = ()


def _sample_events(scene: Scene, draw: random.Random, count: int) -> tuple[list[Event], tuple[int, ...]]:
    """Different events, and a time inside each, at least one second from its start and end."""
    events = draw.sample(scene.events, count)
    return events, tuple(draw.randint(int(event.start) + 1, int(event.end) - 1) for event in events)


def _other(draw: random.Random, names: Iterable[str], *excluded: str) -> str:
    return draw.choice([name for name in names if name not in excluded])


def _similar(draw: random.Random, event: Event, *excluded: str) -> str:
    """Another shape in the event's colour, or its shape in another colour, but none of `excluded`."""
    similar = [f"{event.colour} {shape}" for shape in SHAPES] + [f"{colour} {event.shape}" for colour in COLOURS]
    return _other(draw, similar, event.name, *excluded)


def _what_at(scene: Scene, draw: random.Random) -> _QuestionDraft:
    (event,), times = _sample_events(scene, draw, 1)
    colours, shapes = (
        (event.colour, _other(draw, COLOURS, event.colour)),
        (event.shape, _other(draw, SHAPES, event.shape)),
    )
    right, *wrong = [f"{colour} {shape}" for colour in colours for shape in shapes]
    wrong += [_other(draw, [f"{colour} {shape}" for colour in COLOURS for shape in SHAPES], right, *wrong)]
    return _QuestionDraft(values=_format_times(times), right=right, wrong=wrong, times=times, events=(event,))


def _colour_at(scene: Scene, draw: random.Random) -> _QuestionDraft:
    (event,), times = _sample_events(scene, draw, 1)
    return _QuestionDraft(values=_format_times(times), right=event.colour, times=times, events=(event,))


def _pair_at(scene: Scene, draw: random.Random) -> _QuestionDraft | None:
    if len(scene.events) < 2:
        return None
    pair, times = _sample_events(scene, draw, 2)
    a, b = pair[0].name, pair[1].name
    c = _similar(draw, pair[0], b)
    d = _similar(draw, pair[1], a, c)
    right, *wrong = draw.choice([[(a, b), (a, d), (c, b), (c, d)], [(a, b), (b, a), (c, d), (d, c)]])
    wrong += [draw.choice([pair for pair in permutations((a, b, c, d), 2) if pair not in (right, *wrong)])]
    return _QuestionDraft(
        values=_format_times(times),
        right=", ".join(right),
        wrong=list(map(", ".join, wrong)),
        times=times,
        events=tuple(pair),
    )


def _colours_at(scene: Scene, draw: random.Random) -> _QuestionDraft | None:
    if len(scene.events) < 3:
        return None
    events, times = _sample_events(scene, draw, 3)
    x, y, z = right = tuple(event.colour for event in events)
    if len(set(right)) == 3 and draw.random() < 0.5:
        wrong = draw.sample([order for order in permutations(right) if order != right], 4)
    else:
        v, w = _other(draw, COLOURS, x), _other(draw, COLOURS, z)
        wrong = [(v, y, z), (x, y, w), (v, y, w)]
        others = [colours for colours in product((x, v), COLOURS, (z, w)) if colours not in (right, *wrong)]
        wrong += [draw.choice(others)]
    return _QuestionDraft(
        values=_format_times(times),
        right=", ".join(right),
        wrong=list(map(", ".join, wrong)),
        times=times,
        events=tuple(events),
    )


def _same_colour(scene: Scene, draw: random.Random) -> _QuestionDraft | None:
    same = draw.random() < 0.5
    pairs = [pair for pair in permutations(scene.events, 2) if (pair[0].colour == pair[1].colour) == same]
    if not pairs:
        return None
    pair = draw.choice(pairs)
    times = tuple(draw.randint(int(event.start) + 1, int(event.end) - 1) for event in pair)
    first, second = pair[0].colour, pair[1].colour
    second = _other(draw, COLOURS, first) if same else second
    both, differ = "yes, both are {}", "no, {} and {}"
    wrong = [both.format(first), differ.format(first, second), both.format(second), differ.format(second, first)]
    right = wrong.pop(0 if same else 1)
    return _QuestionDraft(values=_format_times(times), right=right, wrong=wrong, times=times, events=pair)


def _which_time(scene: Scene, draw: random.Random) -> _QuestionDraft | None:
    if len(scene.events) < 4:
        return None
    events, times = _sample_events(scene, draw, 4)
    right, *wrong = _format_times(times)
    return _QuestionDraft(values=(events[0].name,), right=right, wrong=wrong, times=times, events=(events[0],))


def _first_of(scene: Scene, draw: random.Random) -> _QuestionDraft | None:
    if len(scene.events) < 4 or not scan_windows(scene.duration):
        return None  # it names no time, so only a scan of the whole video can show the answer
    chosen = sorted(draw.sample(scene.events, 4), key=lambda event: event.start)
    first, *others = (event.name for event in chosen)
    return _QuestionDraft(values=(), right=first, wrong=draw.sample(others, 3), events=tuple(chosen))


def _background(scene: Scene, draw: random.Random) -> _QuestionDraft:
    wrong = [name for name in BACKGROUNDS if name != scene.background]
    return _QuestionDraft(values=(), right=scene.background, wrong=wrong)


def _span(event: Event) -> str:
    return f"[{event.start:.1f}, {event.end:.1f}]"


def _span_at(scene: Scene, draw: random.Random) -> _QuestionDraft:
    (event,), times = _sample_events(scene, draw, 1)
    return _QuestionDraft(values=_format_times(times), right=_span(event), times=times, events=(event,))


def _span_of(scene: Scene, draw: random.Random) -> _QuestionDraft | None:
    if not scan_windows(scene.duration):
        return None
    event = draw.choice(scene.events)
    return _QuestionDraft(values=(event.name,), right=_span(event), events=(event,))


def _format_times(times: Sequence[int]) -> tuple[str, ...]:
    return tuple(format_time(time) for time in times)


QUESTION_TYPES: dict[str, tuple[Callable[[Scene, random.Random], _QuestionDraft | None], tuple[str, ...]]] = {
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
"""Type to the function that drafts a question, and the wordings of its text."""

QUESTION_CYCLE: tuple[tuple[str, Kind], ...] = (
    ("what_at", "choice"), ("pair_at", "choice"), ("span_at", "grounding"), ("which_time", "choice"),
    ("pair_at", "open"), ("same_colour", "choice"), ("colours_at", "choice"), ("what_at", "open"),
    ("colour_at", "open"), ("background", "choice"), ("first_of", "choice"), ("span_of", "grounding"),
    ("span_at", "grounding"), ("colours_at", "open"), ("background", "open"),
)  # fmt: skip
"""Type and kind of the questions 0, 1, 2, ... of every set, repeated. The last five share a short video."""


def make_question(
    scene: Scene, type: str, kind: Kind, draw: random.Random, *, id: str = "", folder: str = ""
) -> WorldQuestion | None:
    """A question of this type and kind about `scene`; None where the scene lacks what it needs.

    Raises:
        KeyError: unknown type.
    """
    make_draft, wordings = QUESTION_TYPES[type]
    draft = make_draft(scene, draw)
    if draft is None:
        return None
    text, times, answer, options = draw.choice(wordings).format(*draft.values), draft.times, draft.right, {}
    if kind == "choice":
        texts = [draft.right, *draft.wrong[: draw.choice((3, 4))]]
        draw.shuffle(texts)
        options = letter_options(texts)
        answer = next(letter for letter, option in options.items() if option == draft.right)
        if type == "which_time":  # the options are the times, shuffled
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
    """A scene's seed. Splits share no seed: the remainder modulo their number is the split."""
    return stable_seed("world", split, *names) * len(SPLITS) + SPLITS.index(split)


def question_at(seed: int, split: Split, number: int, *, per_scene: int = PER_SCENE, folder: str = "") -> WorldQuestion:
    """Question `number` of a set: the same in every process, whatever was requested before.

    Args:
        per_scene: how many consecutive questions share a scene; another number gives another set.
        folder: of the videos, for `Question.video`.
    """
    return _scene_questions(seed, split, number // per_scene, per_scene, folder)[number % per_scene]


@lru_cache(maxsize=64)
def _scene_questions(seed: int, split: Split, index: int, per_scene: int, folder: str) -> list[WorldQuestion]:
    """The questions of one scene: the first scene drawn that fits all of their types."""
    first = index * per_scene
    for attempt in naturals():
        scene = Scene.from_seed(scene_seed(split, seed, index, attempt))
        questions = []
        for number in range(first, first + per_scene):
            draw = random.Random(stable_seed("question", scene.seed, number))
            question = make_question(
                scene, *QUESTION_CYCLE[number % len(QUESTION_CYCLE)], draw, id=f"{split}-{seed}-{number}", folder=folder
            )
            if question is None:
                break
            questions.append(question)
        if len(questions) == per_scene:
            return questions
    raise AssertionError("unreachable")


def question_set(
    seed: int, split: Split, count: int, *, per_scene: int = PER_SCENE, folder: str = ""
) -> list[WorldQuestion]:
    """`count` questions of a split, balanced over `QUESTION_CYCLE`, about `count` / `per_scene` videos.

    >>> question_set(0, "train", 2)[0].question.id
    'train-0-0'
    """
    return [question_at(seed, split, number, per_scene=per_scene, folder=folder) for number in range(count)]


def fixed_test_set(folder: str = "") -> list[WorldQuestion]:
    """The fixed test set: 500 questions about 100 videos."""
    return question_set(TEST_SEED, "test", TEST_COUNT, folder=folder)
