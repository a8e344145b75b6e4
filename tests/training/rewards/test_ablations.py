"""The mask of tags over generated tokens, with tags of one token and of several."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paravt_infer.chat import ChatTemplate
from paravt_infer.model import load_model_files
from paravt_training.rewards.ablations import group_contrast, tag_token_mask
from tests.fixtures.responses import call_text
from tests.fixtures.reward_records import ANSWER, THOUGHT


@pytest.fixture(scope="module", params=["tiny", "start"])
def chat(request: pytest.FixtureRequest) -> ChatTemplate:
    model: Path = request.getfixturevalue(request.param)
    return load_model_files(str(model)).chat


@pytest.mark.parametrize(
    ("text", "tags"),
    [
        (THOUGHT + call_text(2, 5), ["<think>", "</think>", "<tool_call>", "</tool_call>"]),
        ("so 中 \U0001f3ac</think>\n" + ANSWER, ["</think>", "<answer>", "</answer>"]),
        ("<tool_code>crop_video(1, 2)</tool_code>", ["<tool_code>", "</tool_code>"]),
        ("a < b > c, <b>, think, answer", []),
        ("", []),
    ],
)
def test_the_mask_covers_tags_and_nothing_far_from_them(chat: ChatTemplate, text: str, tags: list[str]) -> None:
    ids = [*chat.encode_text(text), chat.end_ids[0]]
    mask = tag_token_mask(ids, chat)
    assert len(mask) == len(ids)
    masked = "".join(chat.decode([token]) for token, hidden in zip(ids, mask, strict=True) if hidden)
    kept = "".join(chat.decode([token]) for token, hidden in zip(ids, mask, strict=True) if not hidden)
    assert "".join(masked.split()) == "".join(tags)
    assert not any(tag in kept for tag in tags)
    assert mask[-1] is False


def test_no_tokens_have_no_mask(chat: ChatTemplate) -> None:
    assert tag_token_mask([], chat) == []


GROUP = st.lists(st.tuples(st.floats(0, 1), st.booleans()), max_size=8)


@given(group=GROUP)
@settings(deadline=None)
def test_a_contrast_is_bounded_and_opposite_for_the_two_ways(group: list[tuple[float, bool]]) -> None:
    gains = group_contrast([accuracy for accuracy, _ in group], [called for _, called in group])
    assert all(-1 <= gain <= 1 for gain in gains)
    assert len({gain if called else -gain for gain, (_, called) in zip(gains, group, strict=True)}) <= 1
