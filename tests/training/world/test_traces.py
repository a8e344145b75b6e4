"""Traces: the engine's own words, calls that mean the planned windows, summaries that say what the frames show."""

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from paravt_infer.answers import extract_answer, extract_choice
from paravt_infer.backends.base import Backend, Generation, Request
from paravt_infer.chat import Message
from paravt_infer.engine import Engine
from paravt_infer.protocols import get_protocol
from paravt_infer.rollout import Rollout
from paravt_infer.settings import Settings
from paravt_infer.tools import TOOLS
from paravt_infer.video.pool import DecodePool
from paravt_infer.video.sampling import FrameSizing, sample_times
from paravt_infer.video.store import VideoStore
from paravt_training.recipe import TraceMix
from paravt_training.world.questions import WorldQuestion, question_set
from paravt_training.world.render import write_video
from paravt_training.world.scene import COLOURS, Event, Scene
from paravt_training.world.stream import trace_at
from paravt_training.world.traces import (
    FramePlaceholder,
    Trace,
    TraceMessage,
    call_text,
    main_trace,
    perception_trace,
    render_messages,
)
from paravt_training.world.vocabulary import split_words, vocabulary
from paravt_training.world.windows import BUDGETS, scan_windows, short_window, window_summary

STREAM = [trace_at(1, "train", number, TraceMix(sequential=0.3, tool_code=0.2)) for number in range(600)]
MAIN = [trace for trace in STREAM if trace.form != "perception"]
LOOKS = [trace for trace in STREAM if trace.form == "perception"]


def spoken(trace: Trace) -> list[TraceMessage]:
    return [said for said in trace.messages if said.role == "assistant"]


def writes_tool_code(trace: Trace) -> bool:
    return any("<tool_code>" in said.text for said in spoken(trace))


def test_calls_parse_back_into_the_windows_they_mean() -> None:
    for trace in MAIN:
        protocol = get_protocol(trace.protocol)
        calls = [call for said in spoken(trace) for call in protocol.parse_calls(said.text)]
        windows = [TOOLS[call.name].parse_window(call, trace.scene.duration) for call in calls]
        assert tuple(window.span for window in windows) == trace.windows
        assert len(set(trace.windows)) == len(trace.windows) <= 5
        for call, window in zip(calls, windows, strict=True):
            assert call.fault is None and not call.repairs and not window.clamped
            assert call.syntax == ("tool_code" if writes_tool_code(trace) else "tool_call")


def test_forms_have_their_turns() -> None:
    for trace in MAIN:
        protocol = get_protocol(trace.protocol)
        turns = [len(protocol.parse_calls(said.text)) for said in spoken(trace)]
        assert turns[-1] == 0
        if trace.form == "parallel":
            assert turns == [len(trace.windows), 0] and turns[0] >= 1
        elif trace.form == "sequential":
            assert turns == [1] * len(trace.windows) + [0] and len(trace.windows) <= 3
        else:
            assert turns == [0] and not trace.windows


def test_the_last_turn_gives_the_right_answer() -> None:
    for trace in MAIN:
        assert trace.item is not None
        final = spoken(trace)[-1].text
        reading = extract_answer(final)
        assert reading is not None
        options = trace.item.question.options
        assert reading.text == options.get(trace.item.answer, trace.item.answer)  # a choice by its words
        assert not options or extract_choice(reading.text, options) == trace.item.answer
        assert reading.source == ("last_line" if trace.protocol == "direct" else "answer_block")
        assert final.startswith("<think>\n") == (trace.protocol != "direct")


def test_a_sequential_trace_begins_as_the_parallel_one_does() -> None:
    compared = 0
    for asked in question_set(2, "train", 60, per_scene=1):
        parallel, sequential = (main_trace(asked, form, 8) for form in ("parallel", "sequential"))
        if parallel and sequential:
            first, cut = spoken(parallel)[0], spoken(sequential)[0]
            assert first.text.startswith(cut.text)
            assert cut.stopped == (len(parallel.windows) > 1) and not first.stopped
            compared += 1
    assert compared > 30


def test_each_frame_of_the_evidence_is_in_some_window() -> None:
    """Windows show every frame at 1 fps of the events asked about, where a span or an order is asked for."""
    for trace in MAIN:
        if trace.form == "parallel" and trace.item and trace.item.type in ("span_at", "span_of", "first_of"):
            shown = {time for start, end in trace.windows for time in sample_times(start, end, fps=1, limit=16)}
            for event in trace.item.events:
                assert shown >= set(np.arange(event.start, event.end))


def test_overview_traces_answer_what_the_overview_shows() -> None:
    for trace in MAIN:
        if trace.form == "overview":
            assert trace.item is not None and trace.item.seen_by_overview[trace.budget]
    unseen = [one for one in question_set(2, "test", 60) if not one.seen_by_overview[4]]
    assert unseen and all(main_trace(one, "overview", 4, protocol="direct") is None for one in unseen)


def test_a_span_that_no_overview_shows_is_looked_for_everywhere() -> None:
    asked = [one for one in question_set(2, "train", 300) if one.type == "span_of" and not one.seen_by_overview[4]]
    assert asked
    for one in asked:
        trace = main_trace(one, "parallel", 4)
        assert trace is not None and list(trace.windows) == scan_windows(one.scene.duration)
        assert trace.windows[0][0] == 0 and trace.windows[-1][1] == one.scene.duration


def coloured(scene: Scene, time: float) -> str | None:
    """The colour that stands on the background at `time`, read from the picture."""
    picture = scene.render(time, (48, 48))
    differs = (picture != replace(scene, events=()).render(time, (48, 48))).any(axis=2)
    if not differs.any():
        return None
    pixels = picture[differs].astype(int)
    distance = {name: np.abs(pixels - colour).max(axis=1) for name, colour in COLOURS.items()}
    return max(distance, key=lambda name: (distance[name] < 4).sum())


def test_summaries_say_what_the_frames_show_and_no_more() -> None:
    for trace in LOOKS[:120]:
        said = spoken(trace)[-1].text
        claims = re.findall(r"a (\w+) (\w+) from (\d+\.\d) to (\d+\.\d) s\.", said)
        assert said == (
            " ".join(f"a {c} {s} from {a} to {b} s." for c, s, a, b in claims) or "nothing but the background."
        )
        (window,) = trace.windows
        times = sample_times(*window, fps=1, limit=16)
        claimed = {t: colour for colour, _, start, end in claims for t in times if float(start) <= t <= float(end)}
        assert claimed == {time: colour for time in times if (colour := coloured(trace.scene, time))}
        for colour, shape, start, _ in claims:
            event = trace.scene.event_at(float(start))
            assert event is not None and event.name == f"{colour} {shape}"


def test_a_window_that_misses_part_of_an_event_is_summed_up_without_it() -> None:
    event = Event(start=40, end=46, shape="star", colour="red")
    scene = Scene(seed=0, duration=90, background="grey", events=(event,))
    assert window_summary(scene, (43.0, 48.0)) == "a red star from 43.0 to 45.0 s."
    assert window_summary(scene, (46.0, 50.0)) == "nothing but the background."
    assert window_summary(scene, (40.5, 41.2)) == "a red star from 40.5 to 40.5 s."


def test_frames_are_those_that_the_prompt_names() -> None:
    for trace in STREAM[:80]:
        messages = render_messages(trace, (32, 64))
        named = [float(time) for message in messages for time in re.findall(r"<(\d+\.\d) seconds>", message.text)]
        frames = [frame for message in messages for frame in message.frames]
        assert [frame.time for frame in frames] == named
        assert all((frame.width, frame.height) == (32, 64) for frame in frames)
        assert (frames[-1].pixels == trace.scene.render(named[-1], (32, 64))).all()
        if trace.form != "perception":
            overview = sum(isinstance(part, FramePlaceholder) for said in trace.messages[:2] for part in said.parts)
            assert overview == min(trace.budget, trace.scene.duration)


def test_calls_need_a_protocol_with_tools() -> None:
    with pytest.raises(ValueError, match="direct has no tools"):
        main_trace(question_set(0, "train", 1)[0], "parallel", 8, protocol="direct")
    native = main_trace(question_set(0, "train", 1)[0], "parallel", 8, protocol="tools")
    assert native is not None and native.messages[0].role == "user"


def test_a_stream_is_the_same_from_any_number_and_holds_its_mix() -> None:
    assert [trace_at(3, "rl", number) for number in (5, 4)] == [trace_at(3, "rl", number) for number in (4, 5)][::-1]
    alone = TraceMix(parallel=0, sequential=0, overview=0, reasoning=0, direct=0)
    assert {trace_at(3, "train", number, alone).form for number in range(50)} == {"perception"}
    shared = {trace_at(3, "train", number, shared=True).scene.seed for number in range(150)}
    assert 25 <= len(shared) <= 30
    forms = Counter(trace.form for trace in STREAM)
    assert all(forms[form] > 50 for form in ("perception", "parallel", "sequential", "overview"))
    assert {trace.budget for trace in MAIN} == set(BUDGETS)
    assert any(map(writes_tool_code, STREAM))
    evidence = [said for trace in STREAM for said in trace.messages if said.role == "tool"]
    assert any(isinstance(part, FramePlaceholder) for said in evidence for part in said.parts)
    assert not any(writes_tool_code(trace_at(1, "train", number)) for number in range(300))


def test_the_vocabulary_is_closed() -> None:
    known = set(vocabulary())
    assert len(known) == len(vocabulary()) < 300
    for trace in STREAM:
        for part in (part for said in trace.messages for part in said.parts if isinstance(part, str)):
            assert "".join(split_words(part)) == part
            assert known.issuperset(split_words(part)), part


class Speaker(Backend):
    """Says the assistant's part of a trace; its sub-agents see what there is to see. No tokenizer."""

    name = "speaker"
    exact_tokens = False

    def prepare(self, trace: Trace) -> None:
        self.scene, self.turns = trace.scene, [said.text for said in spoken(trace)]
        self.main: list[Message] = []
        self.looks: list[list[Message]] = []

    async def start(self) -> None:
        pass

    def frame_sizing(self, min_pixels: int, max_pixels: int) -> FrameSizing:
        return FrameSizing(multiple=32, min_pixels=min_pixels, max_pixels=max_pixels)

    async def generate(self, request: Request) -> Generation:
        if request.affinity:
            self.main, said = list(request.messages), self.turns.pop(0)
        else:
            self.looks.append(list(request.messages))
            times = [frame.time for frame in request.frames]
            said = window_summary(self.scene, (times[0], times[-1] + 1))
        for stop in request.sampling.stop:
            head, found, _ = said.partition(stop)
            said = head + found
        return Generation(ids=[], text=said, finish="stop", prompt_tokens=0)


def content(messages: list[Message]) -> list[tuple[str, str, list[float]]]:
    return [(message.role, message.text, [frame.time for frame in message.frames]) for message in messages]


@pytest.fixture(scope="module")
def filmed(tmp_path_factory: pytest.TempPathFactory) -> list[WorldQuestion]:
    """Questions about one short video that is really there."""
    folder = tmp_path_factory.mktemp("videos")
    asked = question_set(21, "train", 15, folder=str(folder))[10:]
    write_video(asked[0].scene, Path(asked[0].question.video))
    return asked


@pytest.mark.parametrize("form", ["parallel", "sequential", "overview"])
@pytest.mark.parametrize("evidence", ["text", "frames"])
async def test_a_trace_holds_what_the_engine_says(filmed: list[WorldQuestion], form: str, evidence: str) -> None:
    """The engine, on the real file, with a model that speaks the trace: the same conversation, word for word."""
    traces = [trace for asked in filmed if (trace := main_trace(asked, form, 8, evidence=evidence))]  # type: ignore[arg-type]
    assert traces
    dispatch = "parallel" if form == "overview" else form
    settings = Settings.make(frames=8, dispatch=dispatch, evidence=evidence, max_pixels=4096)
    async with Engine(speaker := Speaker(), settings, frame_source=VideoStore(DecodePool(workers=1))) as engine:
        for trace in traces:
            speaker.prepare(trace)
            check(trace, speaker, await engine.ask(trace.item.question), evidence)  # type: ignore[union-attr]


def check(trace: Trace, speaker: Speaker, rollout: Rollout, evidence: str) -> None:
    assert trace.item is not None
    assert rollout.status == "answered" and rollout.answer == trace.item.answer
    assert content(speaker.main) == content(render_messages(trace, (16, 16)))[:-1]
    assert [tuple(one.used or ()) for one in rollout.evidence] == list(trace.windows)
    looks = [content(render_messages(perception_trace(trace.scene, w), (16, 16)))[:-1] for w in trace.windows]
    assert sorted(map(content, speaker.looks)) == ([] if evidence == "frames" else sorted(looks))


def test_call_texts() -> None:
    window = short_window(40, 100)
    assert call_text(window) == (
        '<tool_call>{"name": "crop_video", "arguments": '
        '{"video_path": "video", "start_time": 38.0, "end_time": 43.0}}</tool_call>'
    )
    code = '<tool_code>\nprint(crop_video(video_path="video", start_time=38.0, end_time=43.0))\n</tool_code>'
    assert call_text(window, "tool_code") == code
