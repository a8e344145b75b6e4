"""The command as a user runs it: output, exit codes, one line for a mistake."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from paravt_infer.bundled import SampleVideo, sample_videos
from paravt_infer.rollout import rollout_from_json
from paravt_infer.rollout_files import load_rollouts
from paravt_training.world.numbered_video import write_numbered_video


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def paravt(home: Path):
    """Runs the command in a process of its own, without a terminal and without a network."""

    def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        variables = {**os.environ, "HOME": str(home), "HF_HUB_OFFLINE": "1", "COLUMNS": "100", **environment}
        variables.pop("XDG_CACHE_HOME", None)
        command = [sys.executable, "-m", "paravt_cli.main", *arguments]
        return subprocess.run(command, capture_output=True, text=True, env=variables, timeout=300)

    return run


def test_help_names_every_sub_command(paravt) -> None:
    done = paravt("--help")
    assert done.returncode == 0
    assert all(name in done.stdout for name in ("ask", "show", "probe", "doctor"))


def test_help_and_the_package_load_nothing_heavy() -> None:
    code = "import sys, paravt_cli.main; print([m for m in ('torch', 'transformers', 'av') if m in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


def asked(sample: SampleVideo) -> list[str]:
    options = [part for letter, text in sample.options.items() for part in ("-o", f"{letter}={text}")]
    return ["ask", sample.path, sample.question, *options]


@pytest.mark.parametrize("sample", sample_videos(), ids=lambda sample: Path(sample.path).stem)
def test_each_sample_is_answered_rightly_by_the_bundled_checkpoint(paravt, sample: SampleVideo) -> None:
    """Looked up, not guessed: the answer is based on windows that parallel sub-agents looked at."""
    done = paravt(*asked(sample), "--json")
    assert done.returncode == 0, done.stderr
    rollout = rollout_from_json(done.stdout)
    assert rollout.answer == sample.answer
    assert len(rollout.supporting_evidence) >= 2 and {call.turn for call in rollout.supporting_evidence} == {0}


def test_in_a_pipe_the_answer_alone_is_on_stdout(paravt, tmp_path: Path) -> None:
    sample, saved = sample_videos()[0], tmp_path / "rollout.json"
    done = paravt(*asked(sample), "--save", str(saved))
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{sample.answer}\n"
    notes = [line for line in done.stderr.splitlines() if line.startswith("note:")]
    assert len(notes) == 1 and "bundled checkpoint" in notes[0] and "--model" in notes[0]

    shown = paravt("show", str(saved))
    assert shown.returncode == 0
    for wanted in (sample.question, "call 2", "00:00", "00:48", "based on", f"{sample.answer}. "):
        assert wanted in shown.stdout
    assert "<think>" in paravt("show", str(saved), "--turns").stdout


def test_json_is_the_rollout_with_the_answer_and_the_evidence_at_its_top(paravt) -> None:
    done = paravt(*asked(sample_videos()[0]), "--json", "--frames", "4")
    rollout = json.loads(done.stdout)
    assert list(rollout)[:5] == ["answer", "evidence", "turns", "usage", "settings"]
    first = rollout["evidence"][0]
    assert first["asked"] == first["used"] and first["status"] == "ok" and first["seconds"] > 0
    assert [frame["time"] for frame in first["frames"]] == sorted(frame["time"] for frame in first["frames"])
    assert rollout["settings"]["frames"] == 4 and len(rollout["overview"]) == 4


def test_the_core_needs_neither_torchvision_nor_sglang_nor_lmms_eval(paravt, tmp_path: Path) -> None:
    """The whole loop with their import forbidden."""
    barrier = "import sys\nfor name in ('torchvision', 'sglang', 'lmms_eval', 'decord'): sys.modules[name] = None\n"
    (tmp_path / "sitecustomize.py").write_text(barrier)
    done = paravt(*asked(sample_videos()[0]), PYTHONPATH=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_a_batch_runs_against_a_real_server_and_resumes(paravt, server, video: str, tmp_path: Path) -> None:
    source, out = tmp_path / "q.jsonl", tmp_path / "r.parquet"
    source.write_text(
        "".join(json.dumps({"id": str(n), "video": video, "question": f"[/{n}]?"}) + "\n" for n in range(3))
    )
    options = ("--server", server.url, "--protocol", "direct", "--frames", "4", "--set", "max_new_tokens=8")
    done = paravt("ask", "--batch", str(source), "--out", str(out), *options, "--set", "temperature=1.5")
    assert done.returncode == 0, done.stderr
    first = list(load_rollouts(out))
    assert [r.question.id for r in first] == ["0", "1", "2"]
    again = paravt("ask", "--batch", str(source), "--out", str(out), *options, "--set", "temperature=1.5")
    assert again.returncode == 0 and list(load_rollouts(out)) == first
    listed = paravt("show", str(out))
    assert "3 rollouts" in listed.stdout and "[/1]?" in listed.stdout  # as it is: no markup
    assert paravt("show", str(out), "--id", "2").stdout.startswith("[/2]?")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["ask"], "name a video and a question"),
        (["ask", "VIDEO", "?", "--model", "/nowhere"], "/nowhere: no such model folder"),
        (["ask", "VIDEO", "?", "--model", "who/knows"], "who/knows: not in the local cache"),
        (["ask", "VIDEO", "?", "--server", "http://127.0.0.1:9"], "http://127.0.0.1:9 cannot be reached"),
        (
            ["ask", "VIDEO", "?", "--model", "m", "--backend", "gpt"],
            "unknown backend 'gpt'; choose from sglang, t",
        ),
        (["ask", "VIDEO", "?", "--model", "m", "--backend", "sglang"], "backend sglang needs --server URL"),
        (["ask", "VIDEO", "?", "--backend", "openai"], "backend openai needs an endpoint"),
        (["ask", "VIDEO", "?", "--model", "m", "--dispatch", "all"], "setting dispatch"),
        (
            ["ask", "VIDEO", "?", "--model", "m", "--set", "framez=3"],
            "unknown setting 'framez'; did you mean",
        ),
        (["ask", "VIDEO", "?", "--model", "m", "--set", "frames"], "write KEY=VALUE"),
        (
            ["ask", "VIDEO", "?", "--model", "m", "--reader", "vlc"],
            "unknown reader 'vlc'; choose from pyav, d",
        ),
        (["ask", "VIDEO", "?", "--model", "m", "-o", "A=a", "-o", "b"], "options: give either all of them a letter"),
        (["ask", "VIDEO", "?", "--save", "x.txt"], "name a .json, .jsonl or .parquet file"),
        (["ask", "VIDEO", "?", "--subtitles", "/no.srt"], "/no.srt: no such subtitle file"),
        (["ask", "/no.mp4", "?"], "/no.mp4: no such file"),
        (["ask", "--batch", "q.jsonl"], "--batch and --out go together"),
        (["probe", "/no.mp4"], "/no.mp4: no such file"),
        (["show", "/no.json"], "/no.json: no such file"),
    ],
    ids=lambda value: None if isinstance(value, list) else value[:30],
)
def test_a_mistake_is_one_line_and_a_non_zero_exit(paravt, video: str, arguments: list[str], complaint: str) -> None:
    done = paravt(*(video if argument == "VIDEO" else argument for argument in arguments))
    assert done.returncode == 1 and done.stdout == ""
    *_, last = done.stderr.strip().splitlines()
    assert last.startswith("paravt: ") and complaint in last
    assert "Traceback" not in done.stderr


def test_probe_prints_what_the_file_is(paravt, video: str, tmp_path: Path) -> None:
    assert "40.00 s (00:40)" in paravt("probe", video).stdout
    turned = write_numbered_video(tmp_path / "turned.mp4", frames=20, rotation=90)
    facts = json.loads(paravt("probe", str(turned), "--json").stdout)
    assert (facts["width"], facts["height"], facts["rotation"], facts["codec"]) == (192, 128, 90, "h264")


def test_doctor_says_what_can_run(paravt) -> None:
    done = paravt("doctor")
    assert done.returncode == 0
    assert "transformers" in done.stdout and "--server URL" in done.stdout
    assert "pip install 'paravt-infer[torchcodec]'" in done.stdout
