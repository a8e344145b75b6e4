"""The journal: what is finished is found again by all that decides its answer, and by nothing less."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paravt_infer import Engine, Question, Settings
from paravt_infer.errors import SettingsError
from paravt_infer.journal import Journal, ResumableRun, rollout_key
from paravt_infer.rollout import BackendRecord, Rollout, rollout_to_json
from paravt_infer.rollout_files import load_rollouts
from paravt_infer.video.pool import DecodePool
from paravt_infer.video.store import VideoStore
from tests.fixtures.scripted import ScriptedBackend

DIRECT = Settings(protocol="direct", frames=2)


def rollout(name: str = "1", status: str = "answered", **more: Any) -> Rollout:
    return Rollout(question=Question(video="v.mp4", text="Which?", id=name), status=status, id=name, **more)


def questions(video: str, count: int = 3) -> list[Question]:
    return [
        Question(video=video, text=f"Question {n}?", options={"A": "x", "B": "y"}, id=f"q{n}") for n in range(count)
    ]


async def ask(
    backend: ScriptedBackend, asked: list[Question], path: Path, *, reader: str = "pyav", values: Settings = DIRECT
) -> list[tuple[str, str | None]]:
    """Question and answer of all rollouts, one at a time."""
    async with Engine(backend, values, frame_source=VideoStore(DecodePool(reader=reader))) as engine:
        run = ResumableRun(engine, asked, Journal(path))
        async for _ in run.run(concurrency=1):
            pass
    return [(one.question.id, one.answer) for one in run.rollouts()]


# The file.


def test_each_episode_is_a_line_that_is_there_as_soon_as_it_is_added(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "new" / "journal.jsonl")
    for number in range(3):
        journal.append(rollout(str(number)))
        assert [one.id for one in load_rollouts(journal.path)] == [str(n) for n in range(number + 1)]


def test_only_what_ended_by_itself_is_finished(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.jsonl")
    for status in ("answered", "no_answer", "failed", "cancelled", "running"):
        journal.append(rollout(status, status))
    assert sorted(one.status for one in journal.load_finished().values()) == ["answered", "no_answer"]


def test_a_failure_after_an_answer_takes_nothing_away_and_a_later_answer_is_the_one(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.jsonl")
    for status, answer in (("failed", None), ("answered", "A"), ("failed", None), ("answered", "B")):
        journal.append(rollout(status=status, answer=answer))
    assert [one.answer for one in journal.load_finished().values()] == ["B"]


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_cut_anywhere_it_keeps_every_whole_line_and_goes_on(tmp_path: Path, data: st.DataObject) -> None:
    lines = [rollout_to_json(rollout(str(number))).encode() + b"\n" for number in range(3)]
    text = b"".join(lines)
    cut = data.draw(st.integers(0, len(text)))
    path = tmp_path / "j.jsonl"
    path.write_bytes(text[:cut])
    journal = Journal(path)
    whole = text[:cut].count(b"\n")
    assert [one.id for one in journal.load_finished().values()] == [str(number) for number in range(whole)]
    journal.append(rollout("later"))
    journal.close()
    assert [one.id for one in load_rollouts(path)] == [*(str(number) for number in range(whole)), "later"]


def test_a_line_that_is_no_rollout_is_named(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    path.write_text(rollout_to_json(rollout()) + '\n{"answer": 3}\n')
    with pytest.raises(SettingsError, match=r"j\.jsonl, line 2: not a saved rollout"):
        Journal(path).load_finished()


def test_a_second_process_cannot_write_it_meanwhile(tmp_path: Path) -> None:
    code = (
        "import pathlib, sys; from paravt_infer.journal import Journal\n"
        "try: Journal(pathlib.Path(sys.argv[1])).load_finished()\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    journal = Journal(tmp_path / "j.jsonl")
    journal.append(rollout())

    def other() -> str:
        return subprocess.check_output([sys.executable, "-c", code, str(journal.path)], text=True)

    assert other() == f"SettingsError {journal.path}: another run is writing it; wait until it ends\n"
    journal.close()
    assert other() == ""


def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    path.symlink_to("/dev/full")
    journal = Journal(path)
    with pytest.raises(SettingsError, match=r"j\.jsonl: cannot write \(No space left on device\); free some space"):
        journal.append(rollout())
    journal.close()


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SettingsError, match=r"j\.jsonl: cannot write \(.*\); free some space or choose another path"):
        Journal(tmp_path / "file" / "j.jsonl").load_finished()


# What an episode is found by.


@pytest.mark.parametrize(
    "changed",
    [
        {"question": Question(video="v.mp4", text="Which?", id="2")},
        {"question": Question(video="w.mp4", text="Which?", id="1")},
        {"question": Question(video="v.mp4", text="Who?", id="1")},
        {"question": Question(video="v.mp4", text="Which?", options={"A": "x"}, id="1")},
        {"question": Question(video="v.mp4", text="Which?", kind="grounding", id="1")},
        {"question": Question(video="v.mp4", text="Which?", subtitles="v.srt", id="1")},
        *({"settings": Settings.make(**one)} for one in (
            {"protocol": "tools"}, {"dispatch": "sequential"}, {"evidence": "frames"}, {"frames": 8},
            {"temperature": 0.7}, {"seed": 1}, {"system_prompt": "Other words."}, {"turn_regex": ["[AB]"]},
        )),
        *({"backend": BackendRecord(**one)} for one in ({"name": "sglang"}, {"model": "m"}, {"fingerprint": "f"})),
        {"reader": "decord"},
    ],
    ids=str,
)  # fmt: skip
def test_whatever_decides_the_answer_tells_episodes_apart(changed: dict[str, Any]) -> None:
    assert rollout_key(rollout(**changed) if "question" not in changed else Rollout(**changed)) != rollout_key(
        rollout()
    )


def test_what_merely_came_of_it_does_not() -> None:
    same = rollout(answer="A", error="x", versions={"torch": "9"}, backend=BackendRecord(servers=["http://other"]))
    assert rollout_key(same) == rollout_key(rollout())


async def test_a_record_has_the_key_that_its_question_was_asked_under(tiny: Path, video: str, tmp_path: Path) -> None:
    values = Settings(protocol="tools", turn_regex=("a", None), system_prompt="Look.", frames=2)
    async with Engine(ScriptedBackend(tiny, ["<answer>A</answer>"]), values) as engine:
        run = ResumableRun(engine, questions(video, 1), Journal(tmp_path / "j.jsonl"))
        [one] = [one async for one in run.run(concurrency=1)]
    [read] = load_rollouts(tmp_path / "j.jsonl")
    assert [rollout_key(one), rollout_key(read)] == run.keys * 2


# Questions, each once.


async def test_what_is_there_is_not_asked_and_comes_first(tiny: Path, video: str, tmp_path: Path) -> None:
    path, three = tmp_path / "j.jsonl", questions(video)
    await ask(ScriptedBackend(tiny, ["A"]), three[1:2], path)
    backend = ScriptedBackend(tiny, ["B", "B"])
    assert await ask(backend, three, path) == [("q0", "B"), ("q1", "A"), ("q2", "B")]
    assert len(backend.requests) == 2
    assert [one.question.id for one in load_rollouts(path)] == ["q1", "q0", "q2"]  # as they ended


async def test_a_question_that_is_there_twice_is_asked_once_and_answered_twice(
    tiny: Path, video: str, tmp_path: Path
) -> None:
    [one] = questions(video, 1)
    assert await ask(ScriptedBackend(tiny, ["A"]), [one, one], tmp_path / "j") == [("q0", "A"), ("q0", "A")]


async def test_another_video_under_the_same_name_is_asked_anew(tiny: Path, video: str, tmp_path: Path) -> None:
    path, film = tmp_path / "j.jsonl", tmp_path / "film.mp4"
    film.write_bytes(Path(video).read_bytes())
    one = questions(str(film), 1)
    assert await ask(ScriptedBackend(tiny, ["A"]), one, path) == [("q0", "A")]
    with film.open("ab") as file:
        file.write(b"\0" * 8)
    assert await ask(ScriptedBackend(tiny, ["B"]), one, path) == [("q0", "B")]


async def test_a_model_that_was_written_anew_is_another(tiny: Path, video: str, tmp_path: Path) -> None:
    path, model = tmp_path / "j.jsonl", tmp_path / "model"
    model.mkdir()
    for file in tiny.iterdir():
        (model / file.name).write_bytes(file.read_bytes())
    one = questions(video, 1)
    assert await ask(ScriptedBackend(model, ["A"]), one, path) == [("q0", "A")]
    (model / "config.json").write_bytes((tiny / "config.json").read_bytes())
    assert await ask(ScriptedBackend(model, ["B"]), one, path) == [("q0", "B")]


async def test_what_decodes_is_part_of_it(tiny: Path, video: str, tmp_path: Path) -> None:
    path, one = tmp_path / "j.jsonl", questions(video, 1)
    await ask(ScriptedBackend(tiny, ["A"]), one, path)
    assert await ask(ScriptedBackend(tiny, ["B"]), one, path, reader="decord") == [("q0", "B")]
    assert await ask(ScriptedBackend(tiny, []), one, path) == [("q0", "A")]  # and the first is still there


async def test_parts_are_of_the_questions_and_each_is_counted_once(tiny: Path, video: str, tmp_path: Path) -> None:
    backend = ScriptedBackend(tiny, ["A", "B", "A"])
    async with Engine(backend, DIRECT) as engine:
        run = ResumableRun(engine, questions(video), Journal(tmp_path / "j.jsonl"))
        first = [one.question.id async for one in run.run(concurrency=1, part=slice(0, 2))]
        second = [one.question.id async for one in run.run(concurrency=1, part=slice(2, 4))]
    assert (first, second) == (["q0", "q1"], ["q2"])
    assert [one.answer for one in run.rollouts()] == ["A", "B", "A"]
