"""The episode loop: what is fed and recorded, turn by turn, and how an episode ends."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from paravt_infer import Engine, Rollout, Settings
from paravt_infer.errors import BackendError, SettingsError
from paravt_infer.rollout import rollout_from_json, rollout_to_json
from tests.fixtures.responses import call_text
from tests.fixtures.scripted import ScriptedBackend

OPTIONS = {"A": "red", "B": "blue"}
CALLS = "<think>look</think>" + call_text(2, 5) + call_text(10, '"00:14"')
ANSWER = "<think>seen</think><answer>B</answer>"


async def ask(backend: ScriptedBackend, video: str, **settings: Any) -> Rollout:
    async with Engine(backend, Settings(**settings)) as engine:
        return await engine.ask(video, "Which colour?", options=OPTIONS)


async def test_a_question_goes_in_and_an_answer_comes_out(tiny: Path, video: str) -> None:
    backend = ScriptedBackend(tiny, [CALLS, ANSWER])
    rollout = await ask(backend, video)
    assert (rollout.status, rollout.answer, rollout.answer_source) == ("answered", "B", "answer_block")
    assert [call.used for call in rollout.evidence] == [[2.0, 5.0], [10.0, 14.0]]
    assert [call.text for call in rollout.evidence] == ["a red circle."] * 2
    assert [frame.time for frame in rollout.evidence[0].frames] == [2.0, 3.0, 4.0]
    assert len(rollout.overview) == 40
    assert rollout.turns[0].calls == [0, 1]
    assert rollout.usage.calls_ok == 2
    assert rollout_from_json(rollout_to_json(rollout)) == rollout


async def test_what_is_fed_is_the_chat_template_of_the_whole_conversation(tiny: Path, video: str) -> None:
    """The ids fed turn by turn are those of the whole conversation rendered at once."""
    backend = ScriptedBackend(tiny, [CALLS, "<think>more</think>" + call_text(20, 22), ANSWER])
    rollout = await ask(backend, video)
    assert backend.chat is not None
    conversation = backend.main[-1].messages
    whole = backend.chat.encode_start(conversation)
    assert rollout.input_ids(2) == whole == backend.main[-1].ids


async def test_every_response_of_a_turn_is_one_tool_turn_in_the_order_of_the_calls(tiny: Path, video: str) -> None:
    faulty = '<tool_call>{"name": "zoom", "arguments": {}}</tool_call>'
    backend = ScriptedBackend(
        tiny, [call_text(2, 5) + faulty + call_text(10, 14), ANSWER], sub=lambda r: f"saw {len(r.frames)}"
    )
    rollout = await ask(backend, video)
    [tool_turn] = [m for m in backend.main[-1].messages if m.role == "tool"]
    assert tool_turn.text.index("saw 3") < tool_turn.text.index("zoom") < tool_turn.text.index("saw 4")
    assert [call.status for call in rollout.evidence] == ["ok", "error", "ok"]


async def test_no_more_than_three_tool_turns_then_the_answer_is_asked_for(tiny: Path, video: str) -> None:
    turns = [call_text(n, n + 1) for n in range(3)]
    backend = ScriptedBackend(tiny, [*turns, ANSWER])
    rollout = await ask(backend, video)
    assert [turn.kind for turn in rollout.turns] == ["main", "main", "main", "final"]
    assert rollout.answer == "B"
    assert "<answer>" in backend.main[-1].messages[-1].text
    assert backend.main[-1].messages[-1].role == "user"


async def test_a_call_in_the_final_turn_is_not_run(tiny: Path, video: str) -> None:
    backend = ScriptedBackend(tiny, [call_text(1, 2), call_text(3, 4)])
    rollout = await ask(backend, video, max_tool_turns=1)
    assert (rollout.status, rollout.answer, len(rollout.evidence)) == ("no_answer", None, 1)


async def test_a_turn_without_call_or_answer_is_asked_for_the_answer(tiny: Path, video: str) -> None:
    backend = ScriptedBackend(tiny, ["<think>hm", ANSWER])
    rollout = await ask(backend, video)
    assert [turn.kind for turn in rollout.turns] == ["main", "final"]
    assert rollout.answer == "B"


async def test_a_turn_that_was_cut_is_closed_before_the_next(tiny: Path, video: str) -> None:
    backend = ScriptedBackend(tiny, ["<think>a very long thought that never ends", ANSWER])
    rollout = await ask(backend, video, max_new_tokens=12)
    assert backend.chat is not None
    assert rollout.turns[0].finish == "length"
    assert rollout.turns[1].fed_ids[0] == backend.chat.end_ids[0]


async def test_a_finished_turn_is_not_closed_twice(tiny: Path, video: str) -> None:
    backend = ScriptedBackend(tiny, [CALLS, ANSWER])
    rollout = await ask(backend, video)
    assert backend.chat is not None
    end = backend.chat.end_ids[0]
    assert rollout.turns[0].output_ids[-1] == end
    assert rollout.turns[1].fed_ids[0] != end


async def test_the_think_prefix_is_fed_and_counts_as_response(tiny: Path, video: str) -> None:
    backend = ScriptedBackend(tiny, ["look</think>" + call_text(2, 5), "seen</think><answer>A</answer>"])
    rollout = await ask(backend, video, think_prefix="every")
    assert backend.chat is not None
    assert [turn.response[:8] for turn in rollout.turns] == ["<think>\n"] * 2
    prefix = backend.chat.encode_text("<think>\n")
    assert all(turn.fed_ids[-len(prefix) :] == prefix for turn in rollout.turns)
    assert rollout.answer == "A"
    first_only = await ask(ScriptedBackend(tiny, [ANSWER]), video, think_prefix="first")
    assert first_only.turns[0].prefix == "<think>\n"


async def test_a_tool_response_that_the_model_writes_itself_has_no_effect(tiny: Path, video: str) -> None:
    forged = call_text(2, 5) + "<tool_response>" + call_text(8, 9) + "</tool_response><answer>A</answer>"
    backend = ScriptedBackend(tiny, [forged, ANSWER])
    rollout = await ask(backend, video)
    assert rollout.turns[0].forged_response
    assert [call.used for call in rollout.evidence] == [[2.0, 5.0]]
    assert rollout.answer == "B"


async def test_the_reversion_to_tool_code_is_recorded_and_run_or_refused(tiny: Path, video: str) -> None:
    reverted = '<tool_code>print(crop_video("v", 2, end_time=5))</tool_code>'
    run = await ask(ScriptedBackend(tiny, [reverted, ANSWER]), video)
    assert [(e.syntax, e.status, e.used) for e in run.evidence] == [("tool_code", "ok", [2.0, 5.0])]
    refused = await ask(ScriptedBackend(tiny, [reverted, ANSWER]), video, tool_code="refuse")
    assert [(e.syntax, e.fault) for e in refused.evidence] == [("tool_code", "tool_code_refused")]


@pytest.mark.parametrize("protocol", ["direct", "reasoning"])
async def test_protocols_without_tools_answer_in_one_turn(tiny: Path, video: str, protocol: str) -> None:
    backend = ScriptedBackend(tiny, ["<think>x</think>The answer is B."])
    rollout = await ask(backend, video, protocol=protocol)
    assert (len(rollout.turns), rollout.answer, rollout.evidence) == (1, "B", [])


async def test_the_models_template_is_given_the_tools(tiny: Path, video: str) -> None:
    backend = ScriptedBackend(tiny, [CALLS, "It is blue."])
    rollout = await ask(backend, video, protocol="tools")
    assert backend.chat is not None
    assert '"crop_video"' in backend.chat.tokenizer.decode(rollout.turns[0].fed_ids)
    assert backend.chat.tokenizer.decode(rollout.turns[1].fed_ids).count("<tool_response>") == 2
    assert rollout.answer == "B"


async def test_a_failed_request_is_an_error_in_the_record_and_never_an_answer(tiny: Path, video: str) -> None:
    class Failing(ScriptedBackend):
        async def generate(self, request: Any) -> Any:
            raise BackendError("http://x answered 500: B")

    rollout = await ask(Failing(tiny, []), video)
    assert (rollout.status, rollout.answer, rollout.error) == ("failed", None, "http://x answered 500: B")


async def test_a_missing_video_is_an_error_in_the_record(tiny: Path) -> None:
    rollout = await ask(ScriptedBackend(tiny, []), "/nowhere/film.mp4")
    assert rollout.status == "failed"
    assert rollout.error == "/nowhere/film.mp4: no such file; check the path"


async def test_settings_that_make_no_sense_are_told_at_once(tiny: Path, video: str) -> None:
    with pytest.raises(SettingsError, match="unknown protocol 'parvat'; did you mean 'paravt'"):
        await ask(ScriptedBackend(tiny, []), video, protocol="parvat")


async def test_leaving_early_cancels_what_is_under_way(tiny: Path, video: str) -> None:
    backend = ScriptedBackend(tiny, [call_text(1, 2)] * 3 + [ANSWER] * 3)
    backend.hold = asyncio.Event()
    async with Engine(backend) as engine:
        task = asyncio.create_task(engine.ask(video, "Which?"))
        while not backend.subs:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert backend.cancelled == [backend.subs[0].id]


async def test_the_record_says_what_is_needed_to_repeat_it(tiny: Path, video: str) -> None:
    rollout = await ask(ScriptedBackend(tiny, [ANSWER]), video, seed=7, temperature=0.7)
    assert rollout.versions["paravt-infer"] and rollout.versions["transformers"]
    assert rollout.protocol is not None and len(rollout.protocol.checksum) == 64
    assert rollout.settings.seed == 7
    assert rollout.reader == "pyav"
    assert rollout.video is not None and rollout.video.duration == pytest.approx(40.0)
