"""The A/B page: one file, well-formed, that shows what the arms did; looked at in a real browser where there is one."""

import base64
import io
import re
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from lmms_tasks.reports.page import Axis, thumbnail_times, write_page
from lmms_tasks.reports.statistics import compare
from lmms_tasks.results import EvalResult
from paravt_infer.questions import Question
from paravt_training.world.numbered_video import read_number
from tests.fixtures.arms import EXACT, arm_result, with_windows

NASTY = "</script><script>alert(1)</script> & <b>\x00\x1b[31m ]]> {{ 7 * 7 }} é 中"


@pytest.fixture
def arms(video: str) -> tuple[list[EvalResult], list[EvalResult]]:
    """Twelve questions of a real video, windows looked at: two flipped each way, and one failed."""
    first, second = [], []
    for number in range(12):
        question = Question(
            video=video, text=f"Question {number}? {NASTY}", options={"A": "red", "B": NASTY}, id=f"q{number}"
        )

        def one(answer: str, seconds: float, *windows: tuple[float, float], broken: bool = False) -> EvalResult:
            plain = arm_result(
                question.id, answer, question=question, task=f"task_{number % 2}",  # noqa: B023
                seconds=seconds, main_visual_tokens=int(100 * seconds), main_prompt_tokens=900, output_tokens=40,
            )  # fmt: skip
            return with_windows(plain, *windows, duration=40.0, broken=broken)

        first.append(one("B" if number in (3, 5) else "A", 2.0 + number, (8, 12), (20, 28)))
        second.append(one("B" if number in (4, 8) else "A", 3.0 + number, (8, 12), (30, 35), broken=True))
    second[11] = arm_result("q11", status="failed", task="task_1", question=first[11].item.question)
    return first, second


def written(path: Path, first: Sequence[EvalResult], second: Sequence[EvalResult]) -> ElementTree.Element:
    """The page as a tree: it parses as strictly as XML does."""
    names = ("dispatch=parallel,evidence=text", "dispatch=sequential,evidence=frames")
    write_page(compare(first, second, EXACT, names=names), first, second, path, title="Parallel <or> sequential")
    return ElementTree.fromstring(path.read_text(encoding="utf-8"))


def flips(page: ElementTree.Element) -> list[ElementTree.Element]:
    return [article for article in page.iter("article") if "flip" in article.get("class", "")]


def words(element: ElementTree.Element) -> str:
    return " ".join("".join(element.itertext()).split())


def test_the_page_is_one_file_that_fetches_and_runs_nothing(
    tmp_path: Path, arms: tuple[list[EvalResult], list[EvalResult]]
) -> None:
    page = written(tmp_path / "new" / "ab.html", *arms)
    assert [file.name for file in (tmp_path / "new").iterdir()] == ["ab.html"]
    tags = {element.tag for element in page.iter()}
    assert not tags & {"script", "link", "iframe", "object", "form"}
    sources = [element.get("src", "") for element in page.iter("img")]
    assert sources and all(source.startswith("data:image/jpeg;base64,") for source in sources)
    assert "url(" not in (tmp_path / "new" / "ab.html").read_text(encoding="utf-8")


def test_what_a_model_or_a_data_set_wrote_is_text_and_nothing_else(
    tmp_path: Path, arms: tuple[list[EvalResult], list[EvalResult]]
) -> None:
    [asked] = [words(p) for p in flips(written(tmp_path / "ab.html", *arms))[0].iter("p") if p.get("class") == "ask"]
    assert asked == "Question 3? </script><script>alert(1)</script> & <b>[31m ]]> {{ 7 * 7 }} é 中"


def test_it_says_the_difference_its_interval_and_what_was_left_out(
    tmp_path: Path, arms: tuple[list[EvalResult], list[EvalResult]]
) -> None:
    said = words(written(tmp_path / "ab.html", *arms))
    assert "11 questions that both arms answered, of 12" in said
    part = compare(*arms, EXACT).overall
    assert part.interval is not None
    assert f"95% interval {part.interval[0]:+.1f} to {part.interval[1]:+.1f}".replace("-", "−") in said
    assert "Left out because an episode failed: 1 questions" in said


def test_plots_have_names_axes_and_units(tmp_path: Path, arms: tuple[list[EvalResult], list[EvalResult]]) -> None:
    page = written(tmp_path / "ab.html", *arms)
    labels = [words(text) for text in page.iter("text") if text.get("class") == "label"]
    assert labels == [
        "percentage points, 95% interval",
        *("seconds per question", "share of questions"),
        *("calls per question", "tokens"),
    ]
    assert len([path for path in page.iter("path") if "curve" in path.get("class", "")]) == 2
    assert {path.get("class") for path in page.iter("path")} >= {"predicted T_seq", "predicted T_par"}


def test_flipped_questions_show_both_arms_answers_and_windows(
    tmp_path: Path, arms: tuple[list[EvalResult], list[EvalResult]]
) -> None:
    page = written(tmp_path / "ab.html", *arms)
    found = flips(page)
    assert [re.search(r"q\d+", words(flip))[0] for flip in found] == ["q3", "q4", "q5", "q8"]  # type: ignore[index]
    assert "Questions that flipped: 4" in words(page)
    gold, other, *_ = found[0].iter("li")
    assert "✓ gold" in words(gold) and "sequential, frames" in words(gold)
    assert "✓ gold" not in words(other) and "parallel, text" in words(other)
    first, second = (svg for svg in found[0].iter("svg") if svg.get("class") == "timeline")
    bars = [rect for rect in first.iter("rect") if "window" in rect.get("class", "")]
    assert [(bar.get("x"), bar.get("width")) for bar in bars] == [("20.0%", "10.0%"), ("50.0%", "20.0%")]
    assert len([tick for tick in first.iter("line") if tick.get("class") == "frame"]) == 20
    assert [rect.get("class") for rect in second.iter("rect")] == ["window c0 ok", "window c1 error"]
    assert "bad_window" in words(found[0]) and "A <b>red</b> circle" in words(found[0])


def test_frames_are_those_of_the_windows(tmp_path: Path, arms: tuple[list[EvalResult], list[EvalResult]]) -> None:
    flip = flips(written(tmp_path / "ab.html", *arms))[0]
    shown = []
    for figure in flip.iter("figure"):
        [image] = figure.iter("img")
        data = base64.b64decode(image.get("src", "").partition(",")[2])
        shown.append((words(figure), read_number(np.asarray(Image.open(io.BytesIO(data))))))
    window = [("00:08", 80), ("00:09", 90), ("00:10", 100), ("00:11", 110)]
    assert shown == [*window, ("00:20", 200), ("00:22", 220), ("00:25", 250), ("00:27", 270), *window]


def test_where_the_video_is_gone_it_says_so(tmp_path: Path) -> None:
    gone = Question(video=str(tmp_path / "gone.mp4"), text="Which?", options={"A": "red", "B": "blue"}, id="1")
    first, second = with_windows(arm_result("1", "A", question=gone), (1, 5)), arm_result("1", "B", question=gone)
    page = written(tmp_path / "ab.html", [first], [second])
    assert "No frames:" in words(page) and "gone.mp4: no such file" in words(page)
    assert not list(page.iter("img")) and "no call: answered from the overview" in words(page)


def test_at_most_forty_flips_are_shown_and_their_number_is_said(tmp_path: Path) -> None:
    page = written(
        tmp_path / "ab.html", [arm_result(str(n)) for n in range(50)], [arm_result(str(n), "B") for n in range(50)]
    )
    assert len(flips(page)) == 40
    assert "Questions that flipped: 50, the first 40 shown" in words(page)


@pytest.mark.parametrize(
    "second", [[arm_result("1")], [arm_result("1", status="failed")]], ids=["nothing flipped", "no pair"]
)
def test_with_little_to_show_there_is_still_a_page(tmp_path: Path, second: list[EvalResult]) -> None:
    page = written(tmp_path / "ab.html", [arm_result("1")], second)
    assert not flips(page) and "Questions that flipped: 0" in words(page)


def test_open_answers_and_spans_are_shown_beside_the_gold(tmp_path: Path) -> None:
    opened = Question(video="film.mp4", text="What?", id="1")
    spans = Question(video="film.mp4", text="When?", kind="grounding", id="2")
    first = [arm_result("1", "a red circle", gold="a red circle", question=opened)]
    second = [arm_result("1", None, gold="a red circle", question=opened)]
    first.append(with_windows(arm_result("2", "0.75", gold="[10, 20]", question=spans), duration=40.0))
    second.append(with_windows(arm_result("2", "0.25", gold="[10, 20]", question=spans), duration=40.0))
    page = written(tmp_path / "ab.html", first, second)
    text, span = flips(page)
    assert "✓ gold a red circle" in words(text) and "no answer" in words(text)
    assert "IoU 0.75" in words(span) and "IoU 0.25" in words(span)
    golds = [rect for rect in span.iter("rect") if rect.get("class") == "goldspan"]
    assert [(rect.get("x"), rect.get("width")) for rect in golds] == [("25.0%", "25.0%")] * 2


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0, 23, [0, 5, 10, 15, 20]),
        (-12, 7, [-10, -5, 0, 5]),
        (0, 0.35, [0, 0.1, 0.2, 0.3]),
        (0, 49_200, [0, 10_000, 20_000, 30_000, 40_000]),
        (0, 0, [0, 0.2, 0.4, 0.6, 0.8, 1]),
    ],
)
def test_ticks_stand_at_round_values(low: float, high: float, ticks: list[float]) -> None:
    assert Axis.over(low, high).ticks == ticks


def test_four_frames_of_a_window_are_picked_evenly() -> None:
    [call] = with_windows(arm_result("1"), (0, 16)).rollout.evidence
    assert thumbnail_times(call) == [0, 5, 10, 15]


@pytest.fixture
def browser(tmp_path: Path):
    """Runs headless Chromium on a page; skips where this machine has none."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "headless_shell")
    binary = next(filter(None, map(shutil.which, names)), None)
    if binary is None:
        pytest.skip("no Chromium here: looked for " + ", ".join(names))

    def run(page: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [
            *(binary, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"),
            *(f"--user-data-dir={tmp_path / 'profile'}", "--enable-logging=stderr", *arguments, page.as_uri()),
        ]
        return subprocess.run(command, capture_output=True, text=True, timeout=120)

    return run


def test_a_browser_shows_the_page_as_written(
    browser, tmp_path: Path, arms: tuple[list[EvalResult], list[EvalResult]]
) -> None:
    page = tmp_path / "ab.html"
    written(page, *arms)
    done = browser(page, "--dump-dom")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count('class="card flip"') == 4 and "Questions that flipped: 4" in done.stdout
    assert "<script" not in done.stdout and "CONSOLE" not in done.stderr  # nothing ran, nothing was complained of


@pytest.mark.parametrize("width", [400, 1400])
def test_a_browser_draws_the_page_at_any_width(
    browser, tmp_path: Path, arms: tuple[list[EvalResult], list[EvalResult]], width: int
) -> None:
    page, picture = tmp_path / "ab.html", tmp_path / "ab.png"
    written(page, *arms)
    done = browser(page, f"--screenshot={picture}", f"--window-size={width},1600")
    assert done.returncode == 0, done.stderr
    with Image.open(picture) as drawn:
        assert drawn.height >= 1000
        colours = drawn.convert("RGB").resize((200, 400)).getcolors(80_000)
        assert colours is not None and len(colours) > 100  # text, plots in two hues, pictures: not a blank page
