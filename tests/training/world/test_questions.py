"""Questions: one right option, an answer that the pictures bear out, and true words on what an overview shows."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256

import numpy as np
import pytest

from paravt_infer.questions import Question
from paravt_infer.times import parse_time
from paravt_infer.video.sampling import sample_times
from paravt_training.world.questions import (
    PER_SCENE,
    QUESTION_CYCLE,
    QUESTION_TYPES,
    SPLITS,
    WorldQuestion,
    fixed_test_set,
    question_at,
    question_set,
)
from paravt_training.world.scene import COLOURS, Event, Scene
from paravt_training.world.windows import BUDGETS

QUESTIONS = question_set(3, "rl", 150)


def events_seen(scene: Scene, text: str) -> list[Event]:
    """The events at the times a text names."""
    found = [scene.event_at(parse_time(clock)) for clock in re.findall(r"\d\d:\d\d", text)]
    assert all(found)
    return [event for event in found if event]


def truth(asked: WorldQuestion, option: str) -> bool:
    """Whether an option, or an answer in words, is right: worked out from the question's text and the scene alone."""
    scene, text = asked.scene, asked.question.text
    seen = events_seen(scene, text)
    by_name = {event.name: event for event in scene.events}
    match asked.type:
        case "what_at" | "pair_at":
            return option == ", ".join(event.name for event in seen)
        case "colour_at" | "colours_at":
            return option == ", ".join(event.colour for event in seen)
        case "same_colour":
            one, two = (event.colour for event in seen)
            return option == (f"yes, both are {one}" if one == two else f"no, {one} and {two}")
        case "which_time":
            return events_seen(scene, option)[0].name in text
        case "first_of":
            return by_name[option].start == min(by_name[name].start for name in asked.question.options.values())
        case "background":
            return option == scene.background
        case "span_at":
            return option == f"[{seen[0].start:.1f}, {seen[0].end:.1f}]"
        case "span_of":
            (name,) = [name for name in by_name if name in text]
            return option == f"[{by_name[name].start:.1f}, {by_name[name].end:.1f}]"
    raise AssertionError(asked.type)


@pytest.mark.parametrize("asked", QUESTIONS, ids=lambda asked: asked.question.id)
def test_exactly_one_answer_is_right(asked: WorldQuestion) -> None:
    options = asked.question.options
    if asked.question.kind == "choice":
        assert 4 <= len(options) <= 5
        assert len(set(options.values())) == len(options)
        assert [letter for letter, option in options.items() if truth(asked, option)] == [asked.answer]
    else:
        assert not options
        assert truth(asked, asked.answer)
    assert Question.model_validate(asked.question.model_dump()) == asked.question


def test_named_times_lie_well_inside_their_events() -> None:
    for asked in QUESTIONS:
        for time in asked.times:
            event = asked.scene.event_at(time)
            assert event and event.start + 1 <= time <= event.end - 1


def test_the_evidence_is_in_the_windows() -> None:
    """Without the evidence's events, the pictures at the times that are asked about show something else."""
    for asked in QUESTIONS:
        assert bool(asked.events) == (asked.type != "background")
        for event in asked.events:
            middle = (event.start + event.end) / 2
            pixels = asked.scene.render(middle, (64, 64)).reshape(-1, 3)
            assert (np.abs(pixels.astype(int) - COLOURS[event.colour]).max(axis=1) < 3).mean() > 0.04


def shown(scene: Scene, event: Event, times: list[float]) -> bool:
    """Whether the event can be seen in any picture at `times`."""
    with_it, without = replace(scene, events=(event,)), replace(scene, events=())
    return any((with_it.render(time, (32, 32)) != without.render(time, (32, 32))).any() for time in times)


def test_what_the_overview_shows_is_what_its_pictures_show() -> None:
    for asked in QUESTIONS[:45]:
        assert list(asked.seen_by_overview) == list(BUDGETS)
        for budget, said in asked.seen_by_overview.items():
            times = sample_times(0, asked.scene.duration, fps=1, limit=budget)
            assert said == all(shown(asked.scene, event, times) for event in asked.events)


def test_small_overviews_miss_most_events_and_large_ones_some() -> None:
    asked = [one for one in question_set(4, "train", 600) if one.events]
    seen = {budget: sum(one.seen_by_overview[budget] for one in asked) / len(asked) for budget in BUDGETS}
    assert seen[4] < seen[8] < 0.25
    assert seen[16] < 0.5
    assert 0.5 < seen[64] < 0.9
    long = [one for one in asked if one.scene.duration > 80]
    assert sum(one.seen_by_overview[16] for one in long) / len(long) < 0.25
    assert sum(one.seen_by_overview[64] for one in long) / len(long) < 0.8
    background = [one for one in question_set(4, "train", 60) if one.type == "background"]
    assert background and all(all(one.seen_by_overview.values()) for one in background)


def test_splits_share_no_video() -> None:
    seeds = {split: {one.scene.seed for one in question_set(0, split, 300)} for split in SPLITS}
    for split, found in seeds.items():
        assert len(found) == 300 / PER_SCENE
        assert {seed % len(SPLITS) for seed in found} == {SPLITS.index(split)}
    assert not seeds["train"] & seeds["test"] and not seeds["rl"] & seeds["test"]


def test_any_question_can_be_had_alone() -> None:
    whole = question_set(8, "train", 20)
    assert [question_at(8, "train", number) for number in reversed(range(20))] == whole[::-1]
    assert question_at(9, "train", 0) != whole[0]
    alone = question_at(8, "train", 2**40 + 3, per_scene=1, folder="videos")
    assert alone.question.video == f"videos/scene-{alone.scene.seed}.mp4"


def test_the_fixed_test_set_is_fixed_and_balanced() -> None:
    asked = fixed_test_set()
    assert len(asked) == 500
    assert len({one.question.id for one in asked}) == 500
    assert len({one.scene.seed for one in asked}) == 100
    counts = Counter((one.type, one.question.kind) for one in asked)
    assert counts.keys() == set(QUESTION_CYCLE) and {form for form, _ in QUESTION_CYCLE} == QUESTION_TYPES.keys()
    share = Counter(QUESTION_CYCLE)
    assert all(abs(counts[form] / share[form] - 500 / len(QUESTION_CYCLE)) < 1 for form in counts)
    lines = "\n".join(f"{one.question.model_dump_json()} {one.answer} {one.scene}" for one in asked)
    assert sha256(lines.encode()).hexdigest()[:16] == "03ba383ed4581958"


def guesses(asked: WorldQuestion) -> Iterator[str]:
    """Options that a reader of the options alone might prefer: those whose words the others repeat most."""
    words = {letter: re.findall(r"[\w:]+", option) for letter, option in asked.question.options.items()}
    common = Counter(word for option in words.values() for word in option)
    score = {letter: sum(common[word] for word in option) for letter, option in words.items()}
    yield from (letter for letter, value in score.items() if value == max(score.values()))


def test_options_do_not_give_the_answer_away() -> None:
    asked = [one for one in question_set(6, "train", 3000) if one.question.kind == "choice"]
    by_words, by_letter = 0.0, Counter(one.answer for one in asked)
    for one in asked:
        best = list(guesses(one))
        by_words += (one.answer in best) / len(best)
    assert by_words / len(asked) < 0.33
    assert max(by_letter.values()) / len(asked) < 0.33
