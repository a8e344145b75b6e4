"""A sweep: all questions, in their order, whatever stopped it before; arms in turns; what went wrong is told."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from lmms_tasks.sweep import JOURNAL, SweepArm, sweep, write_run_info
from paravt_infer import Settings, bundled
from paravt_infer.backends.base import Generation, Request
from paravt_infer.engine import EngineSpec
from paravt_infer.errors import BackendError, SettingsError, VideoError
from paravt_infer.questions import Question
from paravt_infer.rollout_files import load_rollouts
from tests.fixtures.benchmark_questions import SHORT, items
from tests.fixtures.scripted import ScriptedBackend

DIRECT = Settings(protocol="direct", frames=2)
EIGHT = Settings(protocol="direct", frames=8)


class Echo(ScriptedBackend):
    """Answers with the question's last word; each main turn is noted with its number of frames."""

    def __init__(self, model: Path):
        super().__init__(model, [])
        self.heard: list[tuple[str, int]] = []

    async def generate(self, request: Request) -> Generation:
        text = request.messages[-1].text
        word = re.findall(r"word-\d+", text)[0]
        self.heard.append((word, len(request.frames)))
        self.turns.append(word)
        return await super().generate(request)


@pytest.fixture
def echo(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Echo]:
    """Has the next sweeps answered by a backend that echoes; each call makes a new one."""

    def make() -> Echo:
        backend = Echo(tiny)
        monkeypatch.setattr(EngineSpec, "open_backend", lambda spec, say: backend)
        return backend

    return make


def questions(video: str, count: int = 7) -> list[Question]:
    return [Question(video=video, text=f"Say word-{n}", id=f"q{n}") for n in range(count)]


def test_rollouts_are_in_the_questions_order_and_each_has_its_own_answer(
    echo: Callable[[], Echo], video: str, tmp_path: Path
) -> None:
    echo()
    [rollouts] = sweep(
        EngineSpec(), [SweepArm(questions=questions(video), settings=DIRECT, out=tmp_path)], concurrency=3
    )
    assert [(one.question.id, one.answer) for one in rollouts] == [(f"q{n}", f"word-{n}") for n in range(7)]


def test_started_again_with_more_questions_it_asks_only_those(
    echo: Callable[[], Echo], video: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    echo()
    first = SweepArm(questions=questions(video, 3), settings=DIRECT, out=tmp_path, title="words")
    [before] = sweep(EngineSpec(), [first])
    backend = echo()
    [after] = sweep(
        EngineSpec(), [SweepArm(questions=questions(video, 5), settings=DIRECT, out=tmp_path, title="words")]
    )
    assert sorted(backend.heard) == [("word-3", 2), ("word-4", 2)]
    assert after[:3] == before and [one.answer for one in after[3:]] == ["word-3", "word-4"]
    said = capsys.readouterr()
    assert said.out == "" and f"words: 3 of 5 are in {tmp_path} already" in said.err


def test_arms_take_turns_in_blocks_and_keep_their_own_journals(
    echo: Callable[[], Echo], video: str, tmp_path: Path
) -> None:
    backend = echo()
    arms = [
        SweepArm(questions=questions(video, 5), settings=settings, out=tmp_path / name)
        for name, settings in (("a", DIRECT), ("b", EIGHT))
    ]
    a, b = sweep(EngineSpec(), arms, concurrency=1, block=2)
    turns = [(0, 2), (1, 2), (0, 8), (1, 8), (2, 2), (3, 2), (2, 8), (3, 8), (4, 2), (4, 8)]
    assert backend.heard == [(f"word-{n}", frames) for n, frames in turns]
    assert [len(one.overview) for one in (*a, *b)] == [2] * 5 + [8] * 5
    assert [one.settings.frames for one in load_rollouts(tmp_path / "b" / JOURNAL)] == [8] * 5


def test_a_failed_episode_is_in_its_place_and_the_others_are_answered(
    echo: Callable[[], Echo], video: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    echo()
    asked = questions(video, 3)
    asked[1] = Question(video=str(tmp_path / "gone.mp4"), text="Say word-1", id="q1")
    [rollouts] = sweep(EngineSpec(), [SweepArm(questions=asked, settings=DIRECT, out=tmp_path)])
    assert [(one.question.id, one.status, one.answer) for one in rollouts] == [
        ("q0", "answered", "word-0"),
        ("q1", "failed", None),
        ("q2", "answered", "word-2"),
    ]
    assert "1 failed" in capsys.readouterr().err


def test_a_failure_is_asked_again_and_an_answer_is_not(echo: Callable[[], Echo], video: str, tmp_path: Path) -> None:
    echo()
    film = tmp_path / "film.mp4"
    asked = [*questions(video, 1), Question(video=str(film), text="Say word-9", id="late")]
    arm = SweepArm(questions=asked, settings=DIRECT, out=tmp_path)
    sweep(EngineSpec(), [arm])
    film.write_bytes(Path(video).read_bytes())
    backend = echo()
    [rollouts] = sweep(EngineSpec(), [arm])
    assert backend.heard == [("word-9", 2)] and [one.answer for one in rollouts] == ["word-0", "word-9"]


def test_each_rollout_is_described_as_it_comes(
    echo: Callable[[], Echo], video: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    echo()
    seen: list[str | None] = []

    def describe(rollout: object) -> str:
        seen.append(getattr(rollout, "answer", None))
        return f"{len(seen)} so far"

    sweep(EngineSpec(), [SweepArm(questions=questions(video, 3), settings=DIRECT, out=tmp_path)], describe=describe)
    assert sorted(map(str, seen)) == ["word-0", "word-1", "word-2"] and "3 so far" in capsys.readouterr().err


def test_in_process_a_real_model_calls_and_answers(tiny: Path, seven: Path, tmp_path: Path) -> None:
    asked = [item.question for item in items(seven, "paravt_mlvu")[:2]]
    model = EngineSpec(model=str(tiny), backend="transformers", device="cpu")
    [rollouts] = sweep(model, [SweepArm(questions=asked, settings=SHORT, out=tmp_path)])
    assert [one.status for one in rollouts] == ["answered"] * 2
    assert [[call.used for call in one.evidence] for one in rollouts] == [[[2.0, 5.0]]] * 2


def test_where_nothing_is_named_the_bundled_checkpoint_answers(
    tiny: Path, video: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundled, "checkpoint_path", lambda: tiny)
    short = DIRECT.model_copy(update={"max_new_tokens": 4})
    [[rollout]] = sweep(EngineSpec(), [SweepArm(questions=questions(video, 1), settings=short, out=tmp_path)])
    assert (rollout.backend.name, rollout.backend.model) == ("transformers", str(tiny))


@pytest.mark.parametrize(
    ("model", "kind", "complaint"),
    [
        (EngineSpec(model="m", reader="vlc"), VideoError, "unknown reader 'vlc'"),
        (EngineSpec(model="m", backend="gpt"), SettingsError, "unknown backend 'gpt'"),
        (EngineSpec(servers=("http://127.0.0.1:9",)), BackendError, "http://127.0.0.1:9 cannot be reached"),
    ],
    ids=["reader", "backend", "server"],
)
def test_a_model_that_cannot_be_had_is_one_line(
    video: str, tmp_path: Path, model: EngineSpec, kind: type[Exception], complaint: str
) -> None:
    with pytest.raises(kind, match=re.escape(complaint)) as error:
        sweep(model, [SweepArm(questions=questions(video, 1), settings=DIRECT, out=tmp_path / "out")])
    assert "\n" not in str(error.value) and not (tmp_path / "out").exists()


def test_how_a_run_was_made_is_noted_with_its_time(tmp_path: Path) -> None:
    write_run_info(tmp_path, {"model": "m"})
    noted = json.loads((tmp_path / "run.json").read_text())
    assert noted["model"] == "m" and re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", noted["written_at"])
