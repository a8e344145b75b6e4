"""The engine: opened from a spec, asked one question or many at a time."""

import asyncio
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from paravt_infer import Engine, EngineSpec, ParavtError, Question, Settings
from paravt_infer.bundled import checkpoint_path
from paravt_training.world.drawn_frames import DrawnFrames
from paravt_training.world.scene import Scene
from tests.fixtures.scripted import ScriptedBackend


async def test_a_spec_without_a_model_opens_the_bundled_checkpoint() -> None:
    said: list[str] = []
    async with EngineSpec(device="cpu").open(Settings(frames=4), say=said.append) as engine:
        assert engine.backend.name == "transformers" and engine.backend.chat is not None
        assert engine.backend.model == str(checkpoint_path())
        assert engine.settings.frames == 4
        assert engine.frame_source.name == "pyav"
    assert said == ["loading the bundled checkpoint"]


@pytest.mark.parametrize(
    ("spec", "line"),
    [
        (EngineSpec(reader="pyva"), "unknown reader 'pyva'; did you mean 'pyav'?"),
        (EngineSpec(backend="vllm"), "unknown backend 'vllm'; choose from sglang, transformers, openai"),
        (
            EngineSpec(model="/no/model", backend="transformers"),
            "/no/model: no such model folder; check the path, or give",
        ),
    ],
    ids=["reader", "backend", "model"],
)
async def test_a_spec_that_cannot_be_opened_is_an_error_of_one_line(spec: EngineSpec, line: str) -> None:
    with pytest.raises(ParavtError) as raised:
        async with spec.open():
            pass
    assert str(raised.value).startswith(line) and "\n" not in str(raised.value)


async def test_the_record_names_the_frame_source(tiny: Path) -> None:
    frames = DrawnFrames()
    frames.add("scene", Scene.from_seed(3))
    backend = ScriptedBackend(tiny, ["<answer>red</answer>"])
    async with Engine(backend, Settings(frames=4), frame_source=frames) as engine:
        rollout = await engine.ask("scene", "Which colour?")
    assert (rollout.status, rollout.reader) == ("answered", "sample_world")


def _questions(video: str, count: int) -> list[Question]:
    return [Question(video=video, text=f"Question {n}?", id=str(n)) for n in range(count)]


async def test_many_questions_come_as_they_finish_or_in_order(tiny: Path, video: str) -> None:
    class Uneven(ScriptedBackend):
        async def generate(self, request: Any) -> Any:
            if "Question 0?" in request.messages[-1].text:
                while self.finished < 3:
                    await asyncio.sleep(0)
            generation = await super().generate(request)
            self.finished += 1
            return generation

        finished = 0

    for ordered in (False, True):
        backend = Uneven(tiny, ["x"] * 5)
        async with Engine(backend, Settings(protocol="direct")) as engine:
            seen = [r.question.id async for r in engine.ask_many(_questions(video, 5), concurrency=4, ordered=ordered)]
        assert sorted(seen) == ["0", "1", "2", "3", "4"]
        assert (seen == sorted(seen)) is ordered
        assert backend.most_running <= 4


async def test_one_decode_serves_all_episodes_on_a_video(tiny: Path, video: str) -> None:
    async with Engine(ScriptedBackend(tiny, ["x"] * 8), Settings(protocol="direct")) as engine:
        answered = [r async for r in engine.ask_many(_questions(video, 8), concurrency=8)]
        assert [r.status for r in answered] == ["answered"] * 8
        assert engine.frame_source.pool.decodes == 1


async def test_one_failed_episode_fails_no_other(tiny: Path, video: str) -> None:
    questions = [Question(video="/nowhere.mp4", text="?", id="bad"), *_questions(video, 2)]
    async with Engine(ScriptedBackend(tiny, ["x"] * 2), Settings(protocol="direct")) as engine:
        status = {r.question.id: r.status async for r in engine.ask_many(questions)}
    assert status == {"bad": "failed", "0": "answered", "1": "answered"}


async def test_closing_the_iterator_cancels_the_running_episodes(tiny: Path, video: str) -> None:
    class Stuck(ScriptedBackend):
        async def generate(self, request: Any) -> Any:
            if "Question 0?" not in request.messages[-1].text:
                waiting.append(request.id)
                try:
                    await asyncio.Event().wait()
                finally:
                    waiting.remove(request.id)
            return await super().generate(request)

    waiting: list[str] = []
    async with Engine(Stuck(tiny, ["x"]), Settings(protocol="direct", frames=1)) as engine:
        async with aclosing(engine.ask_many(_questions(video, 9), concurrency=3)) as rollouts:
            assert (await anext(rollouts)).question.id == "0"
            while len(waiting) < 3:  # a fourth episode has taken the place of the first
                await asyncio.sleep(0)
        assert waiting == []


async def test_a_slow_reader_holds_back_new_questions(tiny: Path, video: str) -> None:
    read: list[str] = []

    def questions() -> Iterator[Question]:
        for question in _questions(video, 12):
            read.append(question.id)
            yield question

    taken = 0
    backend = ScriptedBackend(tiny, ["x"] * 12)
    async with Engine(backend, Settings(protocol="direct", frames=1)) as engine:
        async for _ in engine.ask_many(questions(), concurrency=3):
            taken += 1
            assert len(read) <= taken + 3
            if others := asyncio.all_tasks() - {asyncio.current_task()}:
                await asyncio.wait(others)  # until every episode that was started has ended
    assert taken == len(read) == 12
