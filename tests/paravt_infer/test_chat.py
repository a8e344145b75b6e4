"""A conversation fed turn by turn is, id for id, the one the model's template writes at once; no text forges it."""

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paravt_infer.chat import ChatTemplate, Message
from paravt_infer.errors import ModelError
from paravt_infer.model import load_model_files
from paravt_infer.protocols import ChatProtocol, ToolResult, get_protocol
from paravt_infer.questions import Question, Subtitle
from paravt_infer.video.types import Frame

QUESTION = Question(video="v.mp4", text="Which comes first, é or 中?", options={"A": "the dog", "B": "the cat"})
CALL = '<tool_call>{"name": "crop_video", "arguments": {"start_time": 1.5, "end_time": 4}}</tool_call>'
FRAMES = [Frame(time, np.zeros((4, 4, 3), np.uint8)) for time in (0.0, 7.5, 15.0)]


@pytest.fixture(scope="module")
def chat(tiny: Path) -> ChatTemplate:
    return load_model_files(str(tiny)).chat


def told(calls: int, *, frames: bool) -> list[ToolResult]:
    """What so many calls return, every second one an error."""
    return [
        ToolResult(
            window=(n, n + 2.5),
            text=f"{len(FRAMES)} frames:" if frames else f"a dog\nruns {n}",
            frames=FRAMES if frames else (),
        )
        if n % 2 == 0
        else ToolResult(window=None, text="end_time is missing", ok=False)
        for n in range(calls)
    ]


def at_once(chat: ChatTemplate, messages: Sequence[Message], tools: Any) -> list[int]:
    """The ids of a whole conversation as the tokenizer's own template renders it."""
    plain = [
        {
            "role": message.role,
            "content": [
                {"type": "text", "text": p} if isinstance(p, str) else {"type": "image"} for p in message.parts
            ],
        }
        for message in messages
    ]
    text = chat.tokenizer.apply_chat_template(plain, tools=tools, tokenize=False, add_generation_prompt=True)
    ids: list[int] = chat.tokenizer.encode(text, add_special_tokens=False)
    return ids


def converse(chat: ChatTemplate, protocol: ChatProtocol, turns: int, calls: int, *, frames: bool, ends: str) -> None:
    """Feed a conversation turn by turn and compare it with the whole after each."""
    messages = protocol.opening_messages(QUESTION, FRAMES, 40.0, [Subtitle(start=0, end=8, text="Hello")])
    ids = chat.encode_start(messages, tools=protocol.tools())
    assert ids == at_once(chat, messages, protocol.tools())
    for turn in range(turns):
        said = f"<think>turn {turn}</think>\n" + "\n".join([CALL] * calls)
        output = chat.encode_text(said + ends)
        new = protocol.tool_messages(told(calls, frames=frames)) if calls else []
        if not calls or turn == turns - 1:
            new += protocol.ask_for_answer(QUESTION)
        ids += output + chat.encode_continuation(output, new)
        messages = [*messages, Message(role="assistant", parts=[said]), *new]
        assert ids == at_once(chat, messages, protocol.tools())
    assert ids.count(chat.image_token_id) == sum(len(message.frames) for message in messages)


@pytest.mark.parametrize("name", ["paravt", "tools"])
@pytest.mark.parametrize("calls", [0, 1, 5])
@pytest.mark.parametrize("frames", [False, True], ids=["text", "frames"])
@pytest.mark.parametrize("ends", ["<|im_end|>", ""], ids=["ended", "cut"])
def test_turn_by_turn_is_the_same_as_at_once(
    chat: ChatTemplate, name: str, calls: int, frames: bool, ends: str
) -> None:
    converse(chat, get_protocol(name), 3, calls, frames=frames, ends=ends)


def test_generated_ids_are_taken_as_they_are(chat: ChatTemplate) -> None:
    """However its text would be tokenised anew, a turn is followed by the same ids."""
    new = get_protocol("paravt").tool_messages(told(2, frames=False))
    by_letter = [i for letter in "<answer>A</answer>" for i in chat.encode_text(letter)]
    assert chat.decode(by_letter) == "<answer>A</answer>"
    assert by_letter != chat.encode_text("<answer>A</answer>")
    assert chat.encode_continuation(by_letter, new) == chat.encode_continuation(
        chat.encode_text("<answer>A</answer>"), new
    )


def test_the_end_of_a_turn_is_fed_where_it_was_not_generated(chat: ChatTemplate) -> None:
    (end,) = chat.encode_text("<|im_end|>")
    new = get_protocol("paravt").ask_for_answer(QUESTION)
    fed = chat.encode_continuation(chat.encode_text("cut of"), new)
    assert fed[0] == end
    assert chat.encode_continuation(chat.encode_text("whole<|im_end|>"), new) == fed[1:]
    assert chat.encode_continuation(chat.encode_text("other end<|endoftext|>"), new) == fed
    assert chat.encode_continuation([], new) == fed


def test_all_responses_of_a_turn_stand_in_one_turn_in_their_order(chat: ChatTemplate) -> None:
    evidence = [ToolResult(window=None, text=word) for word in ("red", "green", "blue")]
    for name in ("paravt", "tools"):
        fed = chat.decode(chat.encode_continuation([], get_protocol(name).tool_messages(evidence)))
        assert fed.count("<|im_start|>") == 2
        assert fed.startswith("<|im_end|>\n<|im_start|>user\n<tool_response>\n")
        assert fed.endswith("</tool_response><|im_end|>\n<|im_start|>assistant\n")
        assert fed.index("red") < fed.index("green") < fed.index("blue")


@pytest.mark.parametrize(
    ("text", "decoded"),
    [
        ("<think>a</think><answer>B</answer><|im_end|>", "<think>a</think><answer>B</answer>"),
        ("B<|im_end|><|endoftext|>", "B"),
        ("a<|im_end|>b", "a<|im_end|>b"),
        ("<|im_end|>", ""),
        (" é 中 \U0001f3ac\n ,.", " é 中 \U0001f3ac\n ,."),
    ],
)
def test_decoding_keeps_tags_and_drops_the_turns_end(chat: ChatTemplate, text: str, decoded: str) -> None:
    assert chat.decode(chat.encode_text(text)) == decoded


SPECIAL = [
    "<|im_start|>",
    "<|im_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|endoftext|>",
]
PIECES = st.sampled_from([*SPECIAL, "<|", "|>", "<", "im_", "end", "image_pad", "<|image", "_pad|>", "\n"]) | st.text(
    max_size=3
)
FORGERY = st.lists(PIECES, max_size=8).map("".join)


def special(chat: ChatTemplate, ids: list[int]) -> list[int]:
    """The special tokens among `ids`."""
    tokens = set(chat.encode_text("".join(SPECIAL)))
    return [i for i in ids if i in tokens]


@pytest.mark.parametrize("token", SPECIAL)
def test_a_special_token_in_a_text_is_no_token(chat: ChatTemplate, token: str) -> None:
    ids = chat.encode_start([Message(role="user", parts=[f"a {token} b", FRAMES[0], token])])
    assert special(chat, ids) == special(chat, chat.encode_start([Message(role="user", parts=["a", FRAMES[0], "b"])]))
    assert ids.count(chat.image_token_id) == 1
    assert "< " + token[1:] in chat.decode(ids)


@given(first=FORGERY, second=FORGERY, third=FORGERY, name=st.sampled_from(["paravt", "tools", "direct"]))
def test_no_question_subtitle_or_evidence_forges_a_turn_or_a_frame(
    chat: ChatTemplate, first: str, second: str, third: str, name: str
) -> None:
    protocol = get_protocol(name)

    def special_of(text: str, option: str, said: str) -> list[list[int]]:
        question = Question(video="v", text=text or "?", options={"A": option})
        subtitles = [Subtitle(start=0, end=1, text=said), Subtitle(start=1, end=2, text=text)]
        evidence = [
            ToolResult(window=None, text=text, frames=FRAMES),
            ToolResult(window=(0, 1), text=option),
            ToolResult(window=None, text=said),
        ]
        return [
            special(chat, chat.encode_start(protocol.opening_messages(question, FRAMES, 40.0, subtitles))),
            special(chat, chat.encode_start(protocol.sub_agent_prompt((0, 1), FRAMES, subtitles, question))),
            special(chat, chat.encode_continuation([], protocol.tool_messages(evidence))),
        ]

    assert special_of(first, second, third) == special_of("a", "b", "c")


def with_template(chat: ChatTemplate, template: str) -> ChatTemplate:
    tokenizer = copy.deepcopy(chat.tokenizer)
    tokenizer.chat_template = template
    return ChatTemplate(tokenizer, image_token_id=chat.image_token_id)


CONTENT = "{% for p in m.content %}{{ p.text if p.type == 'text' else IMAGE }}{% endfor %}"
HEAD = "{% set IMAGE = '<|image_pad|>' %}{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}"
TAIL = "{{ '<|im_end|>\n' }}{% endfor %}"
NO_TOOL_FRAMES = (
    HEAD
    + "{% if m.role == 'tool' %}{% set IMAGE = '' %}{{ m.content[0].text }}{% else %}"
    + CONTENT
    + "{% endif %}"
    + TAIL
)


def fault(action: Any) -> str:
    with pytest.raises(ModelError) as raised:
        action()
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_a_template_that_loses_the_frames_of_tool_messages_is_refused(chat: ChatTemplate) -> None:
    blind = with_template(chat, NO_TOOL_FRAMES)
    protocol = get_protocol("tools")
    assert blind.encode_start(protocol.opening_messages(QUESTION, FRAMES, 40.0)).count(chat.image_token_id) == 3
    assert blind.encode_continuation([], protocol.tool_messages(told(1, frames=False)))
    line = fault(lambda: blind.encode_continuation([], protocol.tool_messages(told(1, frames=True))))
    assert line == (
        "the model's chat template has 0 image tokens for 3 frames in tool messages; "
        "use evidence=text, or another protocol"
    )


def test_a_template_that_drops_earlier_words_is_refused(chat: ChatTemplate) -> None:
    forgetful = with_template(
        chat, HEAD + "{% if loop.last or m.role != 'assistant' %}" + CONTENT + "{% endif %}" + TAIL
    )
    line = fault(lambda: forgetful.encode_continuation([], get_protocol("tools").ask_for_answer(QUESTION)))
    assert "drops assistant text" in line


def test_a_template_that_rewrites_earlier_thoughts_can_be_continued(chat: ChatTemplate) -> None:
    """As those of thinking models do: what it makes of earlier turns does not matter, they are ids already."""
    thinking = with_template(
        chat, HEAD + "{{ '<think></think>' if loop.last and m.role == 'assistant' }}" + CONTENT + TAIL
    )
    asked = get_protocol("tools").ask_for_answer(QUESTION)
    plain = with_template(chat, HEAD + CONTENT + TAIL)
    assert thinking.encode_continuation([], asked) == plain.encode_continuation([], asked)


@pytest.mark.parametrize(
    ("template", "says"),
    [
        (
            HEAD + "{% if m.role == 'system' %}{{ raise_exception('no system prompt') }}{% endif %}" + TAIL,
            "no system prompt",
        ),
        ("{% for %}", "rejects these messages"),
        (HEAD + "{{ m.content + '' }}" + TAIL, "rejects these messages"),
    ],
    ids=["refuses a role", "no template", "content as text only"],
)
def test_a_template_that_cannot_hold_the_messages_is_named(chat: ChatTemplate, template: str, says: str) -> None:
    other = with_template(chat, template)
    assert says in fault(lambda: other.encode_start(get_protocol("paravt").opening_messages(QUESTION, [], 40.0)))
