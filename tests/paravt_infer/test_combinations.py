"""Dispatch parallel or sequential, evidence as text or frames: all four, end to end, on both token-exact backends."""

from pathlib import Path

import pytest

from paravt_infer import Engine, Settings, open_backend
from tests.fixtures.responses import answer_form, calls_form


@pytest.mark.parametrize("evidence", ["text", "frames"])
@pytest.mark.parametrize("dispatch", ["parallel", "sequential"])
@pytest.mark.parametrize("protocol", ["paravt", "tools"])
@pytest.mark.parametrize("backend", ["transformers", "sglang"])
async def test_an_episode(
    request: pytest.FixtureRequest, tiny: Path, video: str, backend: str, protocol: str, dispatch: str, evidence: str
) -> None:
    servers = [request.getfixturevalue("server").url] if backend == "sglang" else []
    parallel = dispatch == "parallel"
    spans = [(2, 5), (10, 12), (30, 39)]
    forms = (calls_form(*spans), answer_form()) if parallel else (*(calls_form(s) for s in spans), answer_form())
    settings = Settings(
        protocol=protocol,
        dispatch=dispatch,  # type: ignore[arg-type]
        evidence=evidence,  # type: ignore[arg-type]
        turn_regex=forms,
        frames=8,
        summary_tokens=12,
        temperature=1.0,
        logprobs=True,
    )
    async with Engine(open_backend(backend=backend, model=str(tiny), servers=servers), settings) as engine:
        rollout = await engine.ask(video, "Which?", options=["a", "b", "c", "d"])
        chat = engine.backend.chat

    assert rollout.status == "answered" and rollout.answer in "ABCD"  # type: ignore[operator]
    assert [call.used for call in rollout.evidence] == [[2.0, 5.0], [10.0, 12.0], [30.0, 39.0]]
    assert [call.turn for call in rollout.evidence] == ([0, 0, 0] if parallel else [0, 1, 2])
    assert len(rollout.turns) == (2 if parallel else 4)
    assert [len(call.frames) for call in rollout.evidence] == [3, 2, 9]
    assert all((call.sub_agent is not None) == (evidence == "text") for call in rollout.evidence)
    assert all(turn.logprobs is not None and len(turn.logprobs) == len(turn.output_ids) for turn in rollout.turns)
    # What the main agent saw is placeholders for the overview, and for the windows where evidence is frames.
    assert chat is not None
    shown = rollout.input_ids(len(rollout.turns) - 1).count(chat.image_token_id)
    assert shown == 8 + (3 + 2 + 9 if evidence == "frames" else 0)
    # In sequential dispatch each turn ends with its call and is closed by what is fed next.
    if not parallel:
        assert all(turn.text.endswith("</tool_call>") for turn in rollout.turns[:-1])
        assert rollout.turns[1].fed_ids[0] == chat.end_ids[0]
