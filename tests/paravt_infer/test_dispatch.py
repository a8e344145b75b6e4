"""How a turn's calls run: together or one a turn, as words or as frames, and what happens when one fails."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from paravt_infer import Engine, Question, Rollout, Settings
from paravt_infer.backends.base import Request
from paravt_infer.errors import BackendError
from tests.fixtures.responses import call_text
from tests.fixtures.scripted import ScriptedBackend

FIVE = "".join(call_text(n, n + 2) for n in (1, 5, 9, 13, 17))
ANSWER = "<answer>B</answer>"


async def ask(backend: ScriptedBackend, video: str, **settings: Any) -> Rollout:
    async with Engine(backend, Settings(**settings)) as engine:
        return await engine.ask(video, "Which?", options=["red", "blue"])


async def test_parallel_sub_agents_are_under_way_at_the_same_time(tiny: Path, video: str) -> None:
    backend = ScriptedBackend(tiny, [FIVE, ANSWER])
    backend.hold = asyncio.Event()

    async def release() -> None:
        while backend.running < 5:
            await asyncio.sleep(0)
        backend.hold.set()  # type: ignore[union-attr]

    rollout, _ = await asyncio.gather(ask(backend, video), release())
    assert backend.most_running == 5
    assert rollout.usage.calls_ok == 5


async def test_sequential_generation_stops_at_the_first_calls_end(tiny: Path, video: str) -> None:
    backend = ScriptedBackend(tiny, [FIVE, FIVE, ANSWER])
    rollout = await ask(backend, video, dispatch="sequential")
    assert rollout.turns[0].text == call_text(1, 3)
    assert backend.most_running == 1
    # The model said the same again: that window is looked at already.
    assert [(e.turn, e.status, e.fault) for e in rollout.evidence] == [
        (0, "ok", None),
        (1, "error", "duplicate_window"),
    ]


async def test_frames_as_evidence_enter_the_main_context_with_their_times(tiny: Path, video: str) -> None:
    backend = ScriptedBackend(tiny, [call_text(2, 5) + call_text(10, 12), ANSWER])
    rollout = await ask(backend, video, evidence="frames")
    assert not backend.subs
    [tool_turn] = [m for m in backend.main[-1].messages if m.role == "tool"]
    assert [frame.time for frame in tool_turn.frames] == [2.0, 3.0, 4.0, 10.0, 11.0]
    assert "<3.0 seconds>" in tool_turn.text
    assert len(backend.main[-1].frames) == 40 + 5
    assert rollout.usage.main_visual_tokens > rollout.turns[0].visual_tokens


async def test_sub_agents_see_their_window_alone_and_not_the_question(tiny: Path, video: str) -> None:
    backend = ScriptedBackend(tiny, [call_text(2, 5), ANSWER])
    await ask(backend, video)
    [sub] = backend.subs
    text = sub.messages[-1].text
    assert [frame.time for frame in sub.frames] == [2.0, 3.0, 4.0]
    assert "<2.0 seconds>" in text and "00:02" in text and "Which?" not in text

    told = ScriptedBackend(tiny, [call_text(2, 5), ANSWER])
    await ask(told, video, question_in_subagent=True)
    assert "Which?" in told.subs[0].messages[-1].text


async def test_a_window_has_at_most_sixteen_frames(tiny: Path, video: str) -> None:
    backend = ScriptedBackend(tiny, [call_text(0, 39), ANSWER])
    rollout = await ask(backend, video)
    times = [frame.time for frame in rollout.evidence[0].frames]
    assert len(times) == 16 and times[0] == 0.0 and times[-1] == 38.0


async def test_one_failed_sub_agent_is_an_error_response_and_the_episode_goes_on(tiny: Path, video: str) -> None:
    def sub(request: Request) -> str | Exception:
        return BackendError("out of luck") if request.frames[0].time == 5.0 else "a circle"

    rollout = await ask(ScriptedBackend(tiny, [FIVE, ANSWER], sub=sub), video)
    assert [e.status for e in rollout.evidence] == ["ok", "error", "ok", "ok", "ok"]
    assert rollout.evidence[1].fault == "sub_agent_failed" and "out of luck" in rollout.evidence[1].text
    assert rollout.status == "answered"


async def test_a_late_sub_agent_is_an_error_response_and_is_cancelled(tiny: Path, video: str) -> None:
    backend = ScriptedBackend(tiny, [call_text(1, 2), ANSWER] * 2)
    async with Engine(backend) as engine:
        question = Question.make(video=video, text="Which?", options=["red", "blue"])
        await engine.ask(question)  # the window's frames are there from now on: no decoding in the half second
        backend.hold = asyncio.Event()
        rollout = await engine.ask(question, settings=Settings(call_seconds=0.5))
    assert (rollout.evidence[0].fault, rollout.status) == ("sub_agent_late", "answered")
    assert backend.cancelled == [backend.subs[1].id]


async def test_a_long_summary_is_cut_and_marked(tiny: Path, video: str) -> None:
    backend = ScriptedBackend(tiny, [call_text(1, 2), ANSWER], sub=lambda r: "red circle " * 50)
    rollout = await ask(backend, video, summary_tokens=10)
    assert rollout.evidence[0].cut and rollout.evidence[0].text.endswith("[cut]")
    assert len(rollout.evidence[0].sub_agent.output_ids) == 10  # type: ignore[union-attr]


async def test_the_sixth_call_of_a_turn_is_refused_by_name(tiny: Path, video: str) -> None:
    rollout = await ask(ScriptedBackend(tiny, [FIVE + call_text(30, 32), ANSWER]), video)
    assert [e.fault for e in rollout.evidence] == [None] * 5 + ["too_many_calls"]


async def test_the_models_video_path_is_ignored_and_its_times_are_clamped(tiny: Path, video: str) -> None:
    call = call_text(38, 90).replace('"v"', '"/etc/passwd"')
    rollout = await ask(ScriptedBackend(tiny, [call, ANSWER]), video)
    evidence = rollout.evidence[0]
    assert (evidence.asked, evidence.used, evidence.clamped) == ([38.0, 90.0], [38.0, 40.0], True)


@pytest.mark.parametrize(
    ("call", "fault"),
    [
        (call_text(5, 5), "start_not_before_end"),
        (call_text(-1, 5), "negative_time"),
        (call_text("NaN", 5), "not_finite"),
        (call_text(41, 45), "beyond_video"),
        (call_text('"soon"', 5), "bad_time"),
        (call_text("null", 5), "missing_time"),
        ("<tool_call>crop it</tool_call>", "bad_json"),
        ("<tool_call>[]</tool_call>", "not_a_call"),
        ('<tool_call>{"name": "crop_vid', "unclosed_block"),
        (call_text(1, 2) + call_text(1, 2), "duplicate_window"),
        (call_text(1, 2).replace("crop_video", "zoom"), "unknown_tool"),
        ("<tool_code>import os</tool_code>", "bad_python"),
    ],
)
async def test_a_faulty_call_is_answered_with_its_faults_name(tiny: Path, video: str, call: str, fault: str) -> None:
    backend = ScriptedBackend(tiny, [call, ANSWER])
    rollout = await ask(backend, video)
    assert rollout.evidence[-1].fault == fault
    assert "Error:" in backend.main[-1].messages[-1].text and "\n" not in rollout.evidence[-1].text
    assert rollout.status == "answered"


async def test_faults_of_form_are_got_over_and_recorded_or_refused(tiny: Path, video: str) -> None:
    loose = call_text(1, 2).replace("<tool_call>", "<tool_call>Here: ")
    run = await ask(ScriptedBackend(tiny, [loose, ANSWER]), video)
    assert [(e.status, e.repairs) for e in run.evidence] == [("ok", ["prose_around_json"])]
    strict = await ask(ScriptedBackend(tiny, [loose, ANSWER]), video, repair=False)
    assert [e.fault for e in strict.evidence] == ["prose_around_json"]


async def test_a_window_that_cannot_be_decoded_is_an_error_response(tiny: Path, tmp_path: Path, video: str) -> None:
    backend = ScriptedBackend(tiny, [call_text(1, 2), ANSWER])
    copy = tmp_path / "copy.mp4"
    copy.write_bytes(Path(video).read_bytes())
    async with Engine(backend) as engine:
        await engine.frame_source.probe(str(copy))
        seen: list[int] = []

        def vandal(rollout: Rollout) -> None:
            if rollout.turns and not seen:  # after the overview, before the window
                seen.append(1)
                copy.write_bytes(b"no longer a video")

        rollout = await engine.ask(Question(video=str(copy), text="?"), on_change=vandal)
    assert rollout.evidence[0].fault == "decode_failed" and rollout.status == "answered"
