"""A question about a video, and its subtitles."""

import string
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, model_validator

from paravt_infer.errors import SettingsError
from paravt_infer.schema import FrozenModel, validation_message


class Question(FrozenModel):
    """A question and the video it is about.

    >>> Question(video="film.mp4", text="Who?", options={"A": "Ann", "B": "Bo"}).kind
    'choice'
    """

    video: str
    """Path of the video file."""
    text: str = Field(min_length=1)
    options: dict[str, str] = {}
    """Letter to text; empty for an open question."""
    kind: Literal["choice", "open", "grounding"] = "open"
    """`grounding` asks for a `[start, end]` span. Options make it `choice`."""
    subtitles: str | None = None
    """Path of an .srt (or .vtt, .ass) file."""
    id: str = ""

    @model_validator(mode="before")
    @classmethod
    def _options_make_a_choice(cls, values: Any) -> Any:
        if isinstance(values, dict):
            options = values.get("options")
            if isinstance(options, Sequence) and not isinstance(options, str):
                values = {**values, "options": letter_options(options)}
            elif isinstance(options, Mapping):
                values = {**values, "options": _validate_letters(options.items())}
            if values.get("options"):
                values = {**values, "kind": "choice"}
        return values

    @classmethod
    def make(cls, **values: Any) -> "Question":
        """A question from keyword values. Raises SettingsError with a one-line message."""
        try:
            return cls(**values)
        except ValidationError as error:
            raise SettingsError(validation_message(error, "question field", known=cls.model_fields)) from None


def letter_options(options: Iterable[str]) -> dict[str, str]:
    """Options by letter: ``A=red`` names its letter, plain texts get A, B, C, ... in order.

    Raises:
        SettingsError: a duplicate letter, a mix of both forms, an empty option, or more than 26 options.

    >>> letter_options(["red", "blue"]), letter_options(["B=blue", "A=red"])
    ({'A': 'red', 'B': 'blue'}, {'B': 'blue', 'A': 'red'})
    """
    texts = [str(option) for option in options]
    named = [len(t) > 1 and t[0] in string.ascii_letters and t[1] == "=" for t in texts]
    if any(named) and not all(named):
        raise SettingsError("options: give either all of them a letter (A=red) or none")
    if len(texts) > 26:
        raise SettingsError(f"options: at most 26 (A to Z), not {len(texts)}")
    pairs = [(text[0], text[2:]) for text in texts] if any(named) else zip(string.ascii_uppercase, texts, strict=False)
    lettered = _validate_letters((letter, text.strip()) for letter, text in pairs)
    for letter, text in lettered.items():
        if not text:
            raise SettingsError(f"options: option {letter} is empty")
    return lettered


def _validate_letters(options: Iterable[tuple[Any, Any]]) -> dict[str, Any]:
    """Options by capital letter: an answer can only name a letter."""
    lettered: dict[str, Any] = {}
    for key, text in options:
        letter = str(key).upper()
        if len(letter) != 1 or letter not in string.ascii_uppercase:
            raise SettingsError(f"options: {str(key)!r} is not a letter from A to Z")
        if letter in lettered:
            raise SettingsError(f"options: letter {letter} is given twice")
        lettered[letter] = text
    return lettered


class Subtitle(FrozenModel):
    """One subtitle and when it is on screen, in seconds."""

    start: float
    end: float
    text: str


def read_subtitles(path: str) -> list[Subtitle]:
    """The subtitles of a file, ordered by time.

    Raises:
        SettingsError: the file is missing, or is not a subtitle file.
    """
    import pysubs2

    if not Path(path).is_file():
        raise SettingsError(f"{path}: no such subtitle file; check the path")
    try:
        lines = pysubs2.load(path, encoding="utf-8-sig", errors="replace")
    except (pysubs2.exceptions.Pysubs2Error, ValueError) as error:
        raise SettingsError(f"{path}: not a subtitle file ({error}); use SRT, VTT or ASS") from None
    if not lines:
        raise SettingsError(f"{path}: has no subtitles; use SRT, VTT or ASS")
    return [
        Subtitle(start=line.start / 1000, end=line.end / 1000, text=" ".join(line.plaintext.split()))
        for line in sorted(lines, key=lambda line: line.start)
        if line.plaintext.strip()
    ]


def subtitles_at(subtitles: Sequence[Subtitle], times: Iterable[float]) -> list[Subtitle]:
    """The subtitles on screen at any of `times`, each once."""
    moments = sorted(times)
    return [line for line in subtitles if any(line.start <= moment <= line.end for moment in moments)]
