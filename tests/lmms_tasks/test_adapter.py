"""The model that lmms-eval sees: one episode a request, what it cost, and failures that are never an answer."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lmms_tasks.results import load_results
from lmms_tasks.tasks import BENCHMARKS
from lmms_tasks.tasks.base import ROW_COLUMN
from paravt_infer.backends.base import Generation, Request
from paravt_infer.engine import EngineSpec
from paravt_infer.errors import SettingsError
from paravt_training.world.benchmark_fixture import benchmark_rows
from tests.fixtures.scripted import ScriptedBackend

CALLS = (
    '<think>Two looks.</think><tool_call>{"name": "crop_video", "arguments": {"start_time": 2, "end_time": 5}}'
    '</tool_call><tool_call>{"name": "crop_video", "arguments": {"start_time": 8, "end_time": 9}}</tool_call>'
)


class Looks(ScriptedBackend):
    """Calls twice in each episode, then answers B."""

    async def generate(self, request: Request) -> Generation:
        answers = any(message.role == "tool" for message in request.messages)
        if request.affinity:
            self.turns.append("<think>Seen.</think><answer>B</answer>" if answers else CALLS)
        return await super().generate(request)


@pytest.fixture
def paravt(tiny: Path, offline: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """The adapter over a scripted backend, its results in `out`."""
    monkeypatch.setattr(EngineSpec, "open_backend", lambda spec, say: Looks(tiny, []))
    from lmms_tasks.adapter import ParavtModel

    return lambda **values: ParavtModel(out=str(tmp_path / "out"), frames=2, **values)


def requests(model: Any, docs: list[dict[str, Any]], task: str = "paravt_mlvu", video: str = "") -> list[Any]:
    """What lmms-eval asks of a chat model: `docs` of a task of ours, or of another about `video`."""
    from lmms_eval.api.instance import Instance

    def messages(doc: dict[str, Any]) -> list[dict[str, Any]]:
        content = [{"type": "video", "url": video}, {"type": "text", "text": str(doc["question"])}]
        return [{"role": "user", "content": content}]

    model.task_dict = {task: {"test": docs}}
    kwargs = {"max_new_tokens": 16, "until": ["\n\n"], "temperature": 0}
    return [
        Instance(
            request_type="generate_until",
            arguments=("", messages, kwargs, number, task, "test"),
            idx=0,
            metadata={"task": task, "doc_id": number, "repeats": 1},
        )
        for number in range(len(docs))
    ]


def mlvu(count: int = 3) -> list[dict[str, Any]]:
    return [{**doc, ROW_COLUMN: number} for number, doc in enumerate(benchmark_rows("mlvu"))][:count]


def test_each_request_is_an_episode_with_its_calls(paravt: Callable[..., Any], tmp_path: Path) -> None:
    model = paravt()
    results = model.generate_until(requests(model, mlvu()))
    assert [result.text for result in results] == ["B"] * 3
    assert [[call.used for call in row.rollout.evidence] for row in model.results] == [[[2.0, 5.0], [8.0, 9.0]]] * 3
    assert [row.item.question.id for row in model.results] == ["world-1#0", "world-1#1", "world-1#2"]
    assert model.failed == 0
    assert list(load_results(tmp_path / "out")) == model.results
    assert not model.is_simple


def test_what_an_episode_cost_reaches_lmms_evals_own_counts(paravt: Callable[..., Any]) -> None:
    from lmms_eval.models.model_utils.gen_metrics import reset_logged_metrics, summarize_logged_metrics
    from lmms_eval.models.model_utils.usage_metrics import reset_usage_metrics, summarize_usage_metrics

    reset_logged_metrics()
    reset_usage_metrics()
    model = paravt()
    results = model.generate_until(requests(model, mlvu()))
    spent = [row.rollout.usage for row in model.results]
    assert [(one.token_counts.input_tokens, one.token_counts.output_tokens) for one in results] == [
        (usage.prompt_tokens, usage.output_tokens) for usage in spent
    ]
    used = summarize_usage_metrics()["by_task"]["paravt_mlvu"]
    assert used["input_tokens"] == sum(usage.prompt_tokens for usage in spent) > 0
    assert used["output_tokens"] == sum(usage.output_tokens for usage in spent) > 0
    throughput = summarize_logged_metrics()
    assert throughput["total_gen_tokens"] == used["output_tokens"]
    assert (throughput["avg_episodes"], throughput["avg_failed"], throughput["avg_calls_an_episode"]) == (3, 0, 2)
    assert 0 < throughput["avg_seconds_an_episode"] <= throughput["total_elapsed_time"]


def test_how_it_was_run_is_kept(paravt: Callable[..., Any], tiny: Path, tmp_path: Path) -> None:
    model = paravt(max_calls=3)
    model.generate_until(requests(model, mlvu(1)))
    noted = json.loads((tmp_path / "out" / "run.json").read_text())
    assert (noted["settings"]["frames"], noted["settings"]["max_calls"]) == (2, 3)
    assert noted["backend"]["model"] == str(tiny) and noted["protocol"]["name"] == "paravt" and noted["reader"]
    assert {"paravt-infer", "torch", "transformers"} <= noted["versions"].keys()


def test_a_failure_is_told_counted_and_never_an_answer(
    paravt: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    docs = mlvu(2)
    docs[1] = {**docs[1], "video_name": "gone.mp4"}
    model = paravt()
    good, broken = model.generate_until(requests(model, docs))
    assert good.text == "B" and model.failed == 1
    assert broken.text.startswith("[paravt: failed] ") and "gone.mp4: no such file" in broken.text
    err = " ".join(capsys.readouterr().err.split())
    assert "failed: gone#1: " in err and "gone.mp4: no such file" in err

    from lmms_tasks.hooks import process_results

    documents = [{**doc, "paravt_task": "paravt_mlvu"} for doc in docs]
    scored = [process_results(doc, [result.text]) for doc, result in zip(documents, (good, broken), strict=True)]
    aggregate = BENCHMARKS["paravt_mlvu"].aggregate
    assert aggregate([one["failed"] for one in scored]) == 1
    assert aggregate([one["accuracy"] for one in scored]) == 100 * (docs[0]["answer"] == "B")  # of the one that ran


def test_what_is_there_is_not_asked_again(paravt: Callable[..., Any], tmp_path: Path) -> None:
    journal = tmp_path / "out" / "journal.jsonl"
    model = paravt()
    first = model.generate_until(requests(model, mlvu()))
    size = journal.stat().st_size
    again = paravt()
    assert again.generate_until(requests(again, mlvu())) == first and journal.stat().st_size == size
    assert again.results == model.results
    changed = paravt(max_calls=1)
    changed.generate_until(requests(changed, mlvu()))
    assert [row.rollout.usage.calls_ok for row in changed.results] == [1] * 3  # of two calls, the second was refused


def test_another_projects_task_is_asked_as_its_text_and_video(paravt: Callable[..., Any], video: str) -> None:
    model = paravt()
    asked = requests(model, [{"question": "Who?\nA. Ann\nB. Bo"}], task="other", video=video)
    [result] = model.generate_until(asked)
    assert result.text == "B" and model.results == []
    assert asked[0].args[2] == {"max_new_tokens": 16, "until": ["\n\n"], "temperature": 0}  # neither used nor changed


def test_a_failure_in_another_projects_task_is_an_empty_text_and_counted(paravt: Callable[..., Any]) -> None:
    model = paravt()
    [result] = model.generate_until(requests(model, [{"question": "Who?"}], task="other", video="/gone.mp4"))
    assert result.text == "" and model.failed == 1


def test_a_task_about_anything_but_one_video_is_refused(paravt: Callable[..., Any], video: str) -> None:
    model = paravt()
    asked = requests(model, [{"question": "Who?"}], task="pictures")
    content = [{"type": "image", "url": "a.png"}, {"type": "text", "text": "Who?"}]
    asked[0].arguments = ("", lambda doc: [{"role": "user", "content": content}], {}, 0, "pictures", "test")
    with pytest.raises(SettingsError, match="task pictures, document 0: has 0 videos, 1 images and 0 sounds"):
        model.generate_until(asked)


@pytest.mark.parametrize("method", ["loglikelihood", "generate_until_multi_round"])
def test_what_an_episode_cannot_do_is_refused_in_one_line(paravt: Callable[..., Any], method: str) -> None:
    with pytest.raises(SettingsError, match=r"the model paravt .*; use tasks of the output type") as error:
        getattr(paravt(), method)([])
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"concurrency": 0}, "concurrency must be a positive integer, not 0"),
        ({"concurrency": "many"}, "concurrency must be a positive integer, not many"),
        ({"dispatch": "all"}, "setting dispatch: "),
        ({"framez": 3}, "unknown setting 'framez'; did you mean 'frames'?"),
        ({"system_prompt": "/gone.txt"}, "/gone.txt: cannot read the system prompt"),
        ({"videos": "mlvu:/gone"}, "videos 'mlvu:/gone': no such folder"),
    ],
    ids=lambda value: next(iter(value.items())) if isinstance(value, dict) else None,
)
def test_a_value_that_makes_no_sense_is_one_line(
    paravt: Callable[..., Any], values: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(SettingsError) as error:
        paravt(**values)
    assert str(error.value).startswith(complaint) and "\n" not in str(error.value)


def test_values_come_as_lmms_eval_reads_them(paravt: Callable[..., Any], tmp_path: Path) -> None:
    from lmms_eval.utils import simple_parse_args_string

    (tmp_path / "words.txt").write_text("Look closely.")
    text = (
        f"server=http://a:1;http://b:2,concurrency=64,temperature=0.7,repair=False,system_prompt={tmp_path}/words.txt"
    )
    model = paravt(**simple_parse_args_string(text))
    assert model.engine_spec.servers == ("http://a:1", "http://b:2") and model.concurrency == 64
    assert (model.settings.temperature, model.settings.repair) == (0.7, False)
    assert model.settings.system_prompt == "Look closely."


def test_servers_and_videos_may_be_lists(paravt: Callable[..., Any], tmp_path: Path) -> None:
    folders = [str(tmp_path), f"mlvu:{tmp_path}"]
    model = paravt(server=["http://a:1", "http://b:2"], videos=folders)
    assert model.engine_spec.servers == ("http://a:1", "http://b:2")
    assert model.video_roots == paravt(videos=";".join(folders)).video_roots
    assert model.video_roots.folders == {"": tmp_path, "mlvu": tmp_path}


def test_lmms_eval_finds_it_by_its_entry_point() -> None:
    from lmms_eval.models import get_model

    from lmms_tasks.adapter import ParavtModel

    assert get_model("paravt") is ParavtModel
