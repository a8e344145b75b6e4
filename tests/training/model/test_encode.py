"""Samples: the ids are those the engine feeds, the labels those the model says, the patches the processor's."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from paravt_infer.agent import MainContext
from paravt_infer.model import load_model_files
from paravt_infer.rollout import Turn
from paravt_training.data.sources import WorldSource, trace_conversation
from paravt_training.model.encode import IGNORED, Encoder
from paravt_training.recipe import TraceMix, WorldData
from paravt_training.world.stream import trace_at
from paravt_training.world.traces import render_messages

KINDS: dict[str, dict[str, Any]] = {
    "perception": {"perception": 1},
    "parallel": {"parallel": 1},
    "sequential": {"sequential": 1, "frames": 0},
    "frames": {"sequential": 1, "frames": 1},
    "tool_code": {"sequential": 0.5, "parallel": 0.5, "tool_code": 1, "frames": 0},
    "overview": {"overview": 1},
    "reasoning": {"reasoning": 1},
    "direct": {"direct": 1},
}
NONE = {"perception": 0, "parallel": 0, "sequential": 0, "overview": 0, "reasoning": 0, "direct": 0}


@pytest.fixture(scope="module")
def encoder(start: Path) -> Encoder:
    return Encoder(str(start))


class _Backend:
    """What the engine's conversation needs of a backend."""

    def __init__(self, chat: Any):
        self.chat = chat


@pytest.mark.parametrize("kind", KINDS)
def test_the_ids_are_those_that_the_engine_feeds(encoder: Encoder, kind: str) -> None:
    chat = encoder.chat
    image, end = chat.image_token_id, chat.tokenizer.eos_token_id
    for number in range(6):
        trace = trace_at(5, "train", number, TraceMix(**{**NONE, **KINDS[kind], "budgets": (4, 8)}))
        conversation = trace_conversation(render_messages(trace, (64, 64)), trace)
        sample = encoder.encode(conversation)
        talk = MainContext(_Backend(chat))  # type: ignore[arg-type]
        waiting, learned = [], []
        for said, message in zip(trace.messages, conversation.messages, strict=True):
            if said.role != "assistant":
                waiting.append(message)
                continue
            fed = talk.feed(waiting, tools=conversation.tools, prefix="")
            output = chat.encode_text(message.text) + ([] if said.stopped else [end])
            talk.add_output(Turn(output_ids=output, text=message.text), [])
            learned += [IGNORED] * sum(4 if one == image else 1 for one in fed) + output
            waiting = []
        expanded = [one for token in talk.ids for one in [token] * (4 if token == image else 1)]
        assert sample.ids.tolist() == expanded
        assert sample.labels.tolist() == learned
        assert len(sample.image_grid_thw) == len(talk.frames)
        assert (sample.ids == image).sum() == 4 * len(talk.frames)
        assert sum(span.end - span.start for span in sample.spans) == (sample.labels != IGNORED).sum()
        turns = [len([one for one in trace.messages if one.role == "assistant"])]
        assert len(sample.spans) == turns[0]


def test_the_end_of_a_turn_is_learned_unless_it_was_stopped(encoder: Encoder) -> None:
    end = encoder.chat.tokenizer.eos_token_id
    mix = TraceMix(**{**NONE, "sequential": 1, "frames": 0.0})
    traces = (trace_at(5, "train", number, mix) for number in range(40))
    trace = next(trace for trace in traces if trace.messages[2].stopped)
    conversation = trace_conversation(render_messages(trace, (64, 64)), trace)
    sample = encoder.encode(conversation)
    ended = (sample.labels == end).sum()
    stopped = sum(said.stopped for said in trace.messages)
    assert stopped == 1 and ended == len(sample.spans) - stopped
    call_end = encoder.chat.tokenizer.convert_tokens_to_ids("</tool_call>")
    place = int((sample.labels == call_end).nonzero()[0])
    assert sample.ids[place + 1] == end and sample.labels[place + 1] == IGNORED


def test_a_think_prefix_is_the_beginning_of_what_is_learned(encoder: Encoder) -> None:
    trace = trace_at(5, "train", 1, TraceMix(**{**NONE, "parallel": 1}))
    text = trace.messages[2].text
    chat = encoder.chat
    assert chat.encode_text("<think>\n") + chat.encode_text(text.removeprefix("<think>\n")) == chat.encode_text(text)


@pytest.mark.parametrize("sizes", [[(64, 64)] * 3, [(64, 96), (32, 64), (64, 96)]])
def test_patches_are_the_processors(encoder: Encoder, start: Path, sizes: list[tuple[int, int]]) -> None:
    draw = np.random.default_rng(0)
    pictures = [draw.integers(0, 256, (height, width, 3), np.uint8) for height, width in sizes]
    processor = load_model_files(str(start)).image_processor
    right = processor(images=pictures, do_resize=False, return_tensors="pt")
    torch.testing.assert_close(encoder.patches(pictures), right["pixel_values"], atol=1e-6, rtol=0)
    grid = [[1, height // 16, width // 16] for height, width in sizes]
    assert right["image_grid_thw"].tolist() == grid


def test_words_digits_and_names_are_single_tokens(encoder: Encoder) -> None:
    tokens = encoder.chat.tokenizer.tokenize("<think>\nat 01:19 a purple triangle from 77.0 to 82.5 s.</think>")
    assert tokens == [
        "<think>", "Ċ", "at", "Ġ", "0", "1", ":", "1", "9", "Ġa", " purple triangle", "Ġfrom",
        "Ġ", "7", "7", ".", "0", "Ġto", "Ġ", "8", "2", ".", "5", "Ġs", ".", "</think>",
    ]  # fmt: skip


def test_a_caption_is_one_frame_and_its_name(encoder: Encoder) -> None:
    world, mix = WorldSource(WorldData(kind="world")), TraceMix(**{**NONE, "caption": 1})
    read = [world.conversation(number, mix) for number in range(30)]
    assert all(len(one.messages[0].frames) == 1 and one.kind == "caption" for one in read)
    said = Counter(one.messages[1].text.split()[0] for one in read)
    assert said["a"] > 20 and said["nothing"] > 0
    assert max(len(encoder.encode(one)) for one in read) < 30
    half = TraceMix(**{**NONE, "caption": 0.5, "perception": 0.5})
    kinds = Counter(world.conversation(number, half).kind for number in range(60))
    assert kinds["caption"] > 15 and kinds["perception"] > 15


def test_a_reading_is_a_question_its_evidence_and_the_answer(encoder: Encoder) -> None:
    world, mix = WorldSource(WorldData(kind="world")), TraceMix(**{**NONE, "reading": 1})
    read = [world.conversation(number, mix) for number in range(30)]
    assert all([message.role for message in one.messages] == ["user", "tool", "assistant"] for one in read)
    assert not any(message.frames for one in read for message in one.messages)
    assert all(one.messages[1].text.startswith("1. [") and "<answer>" in one.messages[2].text for one in read)
    assert all(one.kind == "reading" for one in read)
    assert max(len(encoder.encode(one)) for one in read) < 250


def test_frames_are_worn_by_the_number_alone() -> None:
    data, mix = WorldData(kind="world"), TraceMix(**{**NONE, "perception": 1})
    one, again = WorldSource(data).conversation(3, mix), WorldSource(data).conversation(3, mix)
    clean = WorldSource(data, clean=True).conversation(3, mix)
    for a, b, c in zip(one.messages[0].frames, again.messages[0].frames, clean.messages[0].frames, strict=True):
        assert np.array_equal(a.pixels, b.pixels) and not np.array_equal(a.pixels, c.pixels)
        assert np.abs(a.pixels.astype(int) - c.pixels).mean() < 20
