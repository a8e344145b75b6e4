"""What reinforcement learning asks: the same prompt under a number in every process, from the world and from files."""

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paravt_infer.errors import SettingsError
from paravt_infer.video.sampling import FrameSizing
from paravt_training.grpo.prompts import ParquetPrompts, WorldPrompts, open_prompts
from paravt_training.recipe import ParquetData, WorldData
from paravt_training.world.build import build
from paravt_training.world.questions import question_at

VIDEO = {"type": "video", "video": "a.mp4"}


def of_files(folder: Path, **more: Any) -> ParquetPrompts:
    return ParquetPrompts(ParquetData(kind="parquet", files=[str(folder / "*.parquet")], **more))


def of_row(folder: Path, text: str = "Who sits down?", **info: Any) -> ParquetPrompts:
    """Prompts of a file with one row."""
    messages = json.dumps([{"role": "user", "content": [VIDEO, {"type": "text", "text": text}]}])
    table = pa.table({"messages": [messages], "extra_info": [json.dumps(info)]})
    pq.write_table(table, folder / "rows.parquet")
    return of_files(folder)


# The sample world


def test_a_number_names_a_prompt_in_every_process() -> None:
    data = WorldData(kind="world", seed=5)
    one, other = WorldPrompts(data), WorldPrompts(data)
    backwards = {number: other.prompt(number) for number in reversed(range(20))}
    assert all(one.prompt(number) == backwards[number] for number in range(20))
    assert len({one.prompt(number).id for number in range(40)}) == 40
    assert one.prompt(0) != WorldPrompts(WorldData(kind="world", seed=6)).prompt(0)


def test_a_prompt_of_the_world_knows_its_answer_and_which_budgets_show_it() -> None:
    asked, prompt = question_at(0, "rl", 3), WorldPrompts(WorldData(kind="world")).prompt(3)
    assert (prompt.question, prompt.id) == (asked.question, asked.question.id)
    assert (prompt.gold.answer, prompt.gold.kind) == (asked.answer, asked.question.kind)
    assert prompt.gold.options == asked.question.options and prompt.seen_by_overview == asked.seen_by_overview


async def test_frames_are_there_when_the_prompt_is() -> None:
    prompts = WorldPrompts(WorldData(kind="world"))
    prompt = prompts.prompt(0)
    frames = await prompts.frame_source.frames(
        prompt.question.video, [0.0, 1.0], FrameSizing(multiple=32, max_pixels=4096)
    )
    assert [frame.pixels.shape for frame in frames] == [(64, 64, 3)] * 2


# Files


def test_the_worlds_questions_are_the_same_from_files(tmp_path: Path) -> None:
    """Options, and what the protocol adds of its own, stand in the file's text too and must not be asked twice."""
    build(tmp_path, "rl", 10, 0, videos=False)
    prompts = of_files(tmp_path)
    read = {prompt.id: prompt for prompt in (prompts.prompt(number) for number in range(10))}
    assert len(read) == 10
    for number in range(10):
        asked = question_at(0, "rl", number, folder=str(tmp_path / "videos"))
        prompt = read[asked.question.id]
        assert prompt.question == asked.question
        assert (prompt.gold.answer, prompt.gold.kind) == (asked.answer, asked.question.kind)
        assert prompt.seen_by_overview == asked.seen_by_overview
    assert Counter(prompt.gold.kind for prompt in read.values()).keys() == {"choice", "open", "grounding"}


def test_an_epoch_visits_each_row_once_and_the_next_in_another_order(tmp_path: Path) -> None:
    build(tmp_path, "rl", 12, 0, videos=False)
    prompts, again = of_files(tmp_path, seed=1), of_files(tmp_path, seed=1)
    first, second = [[prompts.prompt(12 * epoch + n).id for n in range(12)] for epoch in range(2)]
    assert sorted(first) == sorted(second) and first != second
    assert first == [again.prompt(n).id for n in range(12)]


def test_prompts_can_be_asked_for_on_several_threads(tmp_path: Path) -> None:
    build(tmp_path, "rl", 12, 0, videos=False)
    prompts = of_files(tmp_path)
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(lambda n: prompts.prompt(n).id, range(24))) == [prompts.prompt(n).id for n in range(24)]


def test_a_choice_whose_options_stand_in_its_text_is_asked_as_written(tmp_path: Path) -> None:
    """The public RL file has no options of their own."""
    text = "What colour is it?\nOptions:\nA. red\nB. blue"
    prompt = of_row(tmp_path, text, answer="B", question_type="mcq").prompt(0)
    assert (prompt.question.text, prompt.question.options, prompt.gold.kind) == (text, {}, "choice")
    assert (prompt.id, prompt.question.video) == ("rows-1", str(tmp_path / "a.mp4"))


def test_a_question_of_its_own_goes_before_the_text_of_the_row(tmp_path: Path) -> None:
    text = "Watch closely. When does he sit down? Answer with a span."
    prompt = of_row(tmp_path, text, question="When does he sit down?", answer="[3.1, 9.0]", kind="grounding").prompt(0)
    assert (prompt.question.text, prompt.question.kind) == ("When does he sit down?", "grounding")


@pytest.mark.parametrize(
    ("info", "told"),
    [
        ({"answer": "E", "options": ["red", "blue"]}, "gold answer 'E': not one of the options A, B; fix the row"),
        ({"answer": "soon", "kind": "grounding"}, "gold answer 'soon': not [start, end] in seconds; fix the row"),
        ({"kind": "open"}, "gold answer '': has no words; fix the row"),
    ],
)
def test_a_row_without_a_usable_answer_is_named(tmp_path: Path, info: dict[str, Any], told: str) -> None:
    with pytest.raises(SettingsError) as caught:
        of_row(tmp_path, **info).prompt(0)
    assert str(caught.value) == f"{tmp_path}/rows.parquet, row 1: {told}"


@pytest.mark.parametrize(
    ("messages", "told"),
    [
        ([{"role": "user", "content": "Who?"}], "has no video; add one or leave the row out"),
        ([{"role": "system", "content": [VIDEO]}], "has no question (no user message)"),
        ("{", "bad_json"),
    ],
)
def test_a_row_that_is_no_prompt_is_named(tmp_path: Path, messages: Any, told: str) -> None:
    text = messages if isinstance(messages, str) else json.dumps(messages)
    pq.write_table(pa.table({"messages": [text]}), tmp_path / "rows.parquet")
    with pytest.raises(SettingsError) as caught:
        of_files(tmp_path).prompt(0)
    assert f"{tmp_path}/rows.parquet, row 1" in str(caught.value) and told in str(caught.value)


def test_prompts_are_of_what_the_recipe_names(tmp_path: Path) -> None:
    build(tmp_path, "rl", 1, 0, videos=False)
    assert isinstance(open_prompts(WorldData(kind="world")), WorldPrompts)
    files = ParquetData(kind="parquet", files=[str(tmp_path / "rl.parquet")])
    assert isinstance(open_prompts(files), ParquetPrompts)
    with pytest.raises(SettingsError, match="no such file"):
        open_prompts(ParquetData(kind="parquet", files=[str(tmp_path / "none.parquet")]))
