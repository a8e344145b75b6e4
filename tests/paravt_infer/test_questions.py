"""A question is checked when it is made; subtitles are read from the usual files."""

from pathlib import Path
from typing import Any

import pytest

from paravt_infer.errors import SettingsError
from paravt_infer.questions import Question, Subtitle, letter_options, read_subtitles, subtitles_at


def fault(action: Any, *values: Any, **named: Any) -> str:
    with pytest.raises(SettingsError) as raised:
        action(*values, **named)
    line = str(raised.value)
    assert "\n" not in line
    return line


@pytest.mark.parametrize(
    ("options", "lettered"),
    [
        ([], {}),
        (["red", "blue"], {"A": "red", "B": "blue"}),
        ([" red "], {"A": "red"}),
        (["A=red", "B=blue"], {"A": "red", "B": "blue"}),
        (["b=blue", "a=red"], {"B": "blue", "A": "red"}),
        (["x = 1 + 2", "2"], {"A": "x = 1 + 2", "B": "2"}),
        (["A=B=C"], {"A": "B=C"}),
        (map(str, range(26)), {chr(65 + n): str(n) for n in range(26)}),
    ],
    ids=["none", "plain", "trimmed", "named", "named in another order", "equals sign", "two equals signs", "26"],
)
def test_options_get_letters(options: Any, lettered: dict[str, str]) -> None:
    assert letter_options(options) == lettered


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["A=red", "blue"], "either all of them a letter (A=red) or none"),
        (["A=red", "a=blue"], "letter A is given twice"),
        (["red", " "], "option B is empty"),
        (["A=", "B=x"], "option A is empty"),
        ([str(n) for n in range(27)], "at most 26 (A to Z), not 27"),
    ],
    ids=["mixed", "twice", "blank", "blank named", "27"],
)
def test_options_that_make_no_sense_are_named(options: list[str], says: str) -> None:
    line = fault(letter_options, options)
    assert line.startswith("options: ")
    assert says in line
    assert fault(Question.make, video="v.mp4", text="Q?", options=options) == line


def test_options_make_a_choice() -> None:
    question = Question.make(video="v.mp4", text="Which?", options=["red", "blue"])
    assert (question.kind, question.options) == ("choice", {"A": "red", "B": "blue"})
    assert Question.make(video="v.mp4", text="Which?").kind == "open"
    assert Question.make(video="v.mp4", text="When?", kind="grounding").kind == "grounding"


def test_options_by_letter_keep_their_order_and_get_capitals() -> None:
    question = Question.make(video="v.mp4", text="Which?", options={"b": "blue", "A": "red"})
    assert list(question.options.items()) == [("B", "blue"), ("A", "red")]


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"video": "v.mp4"}, "question field text: is missing"),
        ({"video": "v.mp4", "text": ""}, "question field text: must have at least 1 character, not ''"),
        ({"video": None, "text": "Q?"}, "question field video: must be a valid string, not None"),
        (
            {"video": "v", "text": "Q?", "kind": "quiz"},
            "question field kind: must be 'choice', 'open' or 'grounding', not 'quiz'",
        ),
        (
            {"video": "v", "text": "Q?", "option": []},
            "unknown question field 'option'; did you mean 'options'?",
        ),
        (
            {"video": "v", "text": "Q?", "options": "red"},
            "question field options: must be a valid dictionary, not 'red'",
        ),
        ({"video": "v", "text": "Q?", "options": {"A": 1}}, "question field options.A: must be a valid string, not 1"),
        ({"video": "v", "text": "Q?", "options": {"A1": "x"}}, "options: 'A1' is not a letter from A to Z"),
        ({"video": "v", "text": "Q?", "options": {"": "x"}}, "options: '' is not a letter from A to Z"),
        ({"video": "v", "text": "Q?", "options": {"a": "x", "A": "y"}}, "options: letter A is given twice"),
    ],
    ids=["no text", "empty text", "no video", "kind", "misspelt", "one text", "number", "name", "no letter", "twice"],
)
def test_a_question_that_cannot_be_is_refused_in_one_line(values: dict[str, Any], line: str) -> None:
    assert fault(Question.make, **values) == line


SRT = """\
2
00:00:05,000 --> 00:00:07,250
<i>Second</i>
line

1
00:00:01,000 --> 00:00:02,500
First

3
01:00:00,000 --> 01:00:01,000

"""
VTT = """\
WEBVTT

00:01.000 --> 00:02.500
First

00:05.000 --> 00:07.250
Second
line
"""
ASS = """\
[Script Info]
ScriptType: v4.00+

[V4+ Styles]
Format: Name, Fontname, Fontsize
Style: Default,Arial,20

[Events]
Format: Layer, Start, End, Style, Name, MarginL, MarginR, MarginV, Effect, Text
Dialogue: 0,0:00:05.00,0:00:07.25,Default,,0,0,0,,{\\i1}Second\\Nline
Dialogue: 0,0:00:01.00,0:00:02.50,Default,,0,0,0,,First
"""


@pytest.mark.parametrize(("name", "content"), [("a.srt", SRT), ("a.vtt", VTT), ("a.ass", ASS), ("a.txt", SRT)])
@pytest.mark.parametrize("start", ["", "\ufeff"], ids=["", "byte order mark"])
def test_subtitles_are_read_in_order_of_time_without_styles(
    tmp_path: Path, name: str, content: str, start: str
) -> None:
    path = tmp_path / name
    path.write_text(start + content, encoding="utf-8")
    assert read_subtitles(str(path)) == [
        Subtitle(start=1, end=2.5, text="First"),
        Subtitle(start=5, end=7.25, text="Second line"),
    ]


def test_subtitles_that_are_not_utf8_are_read_as_far_as_can_be(tmp_path: Path) -> None:
    path = tmp_path / "a.srt"
    path.write_bytes(SRT.replace("First", "Caf\xe9").encode("latin-1"))
    assert read_subtitles(str(path))[0].text == "Caf\ufffd"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "no such subtitle file"),
        (b"", "not a subtitle file"),
        (b"Just some words.\nAnd more.\n", "not a subtitle file"),
        (b"WEBVTT\n\n", "has no subtitles"),
        (bytes(range(256)) * 40, "not a subtitle file"),
        (b"\x00\x00\x00\x18ftypmp42" + b"\x00" * 4000, "not a subtitle file"),
        (b'{"lines": []}', "not a subtitle file"),
    ],
    ids=["missing", "empty", "prose", "no line", "bytes", "a video", "JSON"],
)
def test_a_file_that_holds_no_subtitles_is_named(tmp_path: Path, content: bytes | None, says: str) -> None:
    path = tmp_path / "film.srt"
    if content is not None:
        path.write_bytes(content)
    line = fault(read_subtitles, str(path))
    assert line.startswith(f"{path}: {says}")


def test_a_folder_is_no_subtitle_file(tmp_path: Path) -> None:
    assert fault(read_subtitles, str(tmp_path)) == f"{tmp_path}: no such subtitle file; check the path"


def test_a_line_is_shown_at_the_frames_it_is_on_screen_for_and_once() -> None:
    first, second, third = lines = [
        Subtitle(start=1, end=2, text="a"),
        Subtitle(start=2, end=4, text="b"),
        Subtitle(start=9, end=10, text="c"),
    ]
    assert subtitles_at(lines, [0.5, 4.5]) == []
    assert subtitles_at(lines, [3.5, 3.0, 2.5]) == [second]
    assert subtitles_at(lines, [2.0]) == [first, second]  # both ends are on screen
    assert subtitles_at(lines, [10.0, 1.0]) == [first, third]
    assert subtitles_at([], [1.0]) == []
    assert subtitles_at(lines, []) == []
