"""Settings that cannot be are refused in one line, which a person who knows no pydantic understands."""

import math
from typing import Any

import pytest

from paravt_infer.errors import SettingsError
from paravt_infer.settings import Settings


def test_the_defaults_are_the_papers() -> None:
    settings = Settings.make()
    assert (settings.frames, settings.fps, settings.window_frames) == (64, 1.0, 16)
    assert (settings.min_pixels, settings.max_pixels) == (784, 50176)
    assert (settings.max_calls, settings.max_tool_turns) == (5, 3)
    assert (settings.summary_tokens, settings.max_new_tokens) == (512, 2048)
    assert (settings.dispatch, settings.evidence, settings.question_in_subagent) == ("parallel", "text", False)


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"frames": 0}, "setting frames: must be at least 1, not 0"),
        ({"frames": 5000}, "setting frames: must be at most 4096, not 5000"),
        ({"frames": "many"}, "setting frames: must be a valid integer, not 'many'"),
        ({"frames": 1.5}, "setting frames: must be a valid integer, not 1.5"),
        ({"fps": 0}, "setting fps: must be greater than 0, not 0"),
        ({"fps": math.nan}, "setting fps: must be a finite number, not nan"),
        ({"top_p": 2}, "setting top_p: must be at most 1, not 2"),
        ({"temperature": -0.5}, "setting temperature: must be at least 0, not -0.5"),
        ({"temperature": math.inf}, "setting temperature: must be a finite number, not inf"),
        ({"call_seconds": math.inf}, "setting call_seconds: must be a finite number, not inf"),
        ({"max_tool_turns": -1}, "setting max_tool_turns: must be at least 0, not -1"),
        ({"dispatch": "both"}, "setting dispatch: must be 'parallel' or 'sequential', not 'both'"),
        ({"think_prefix": "on"}, "setting think_prefix: must be 'off', 'first' or 'every', not 'on'"),
        ({"seed": "x"}, "setting seed: must be a valid integer, not 'x'"),
        ({"turn_regex": ["a", 1]}, "setting turn_regex.1: must be a valid string, not 1"),
        ({"framse": 8}, "unknown setting 'framse'; did you mean 'frames'?"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_the_line_names_the_setting_the_fault_and_what_is_allowed(values: dict[str, Any], line: str) -> None:
    with pytest.raises(SettingsError) as raised:
        Settings.make(**values)
    assert str(raised.value) == line


def test_an_unknown_setting_like_no_other_lists_those_there_are() -> None:
    with pytest.raises(SettingsError) as raised:
        Settings.make(zzz=1)
    assert str(raised.value).startswith("unknown setting 'zzz'; choose from protocol, ")
    assert all(name in str(raised.value) for name in Settings.model_fields)


def test_a_long_value_is_shortened_and_stays_on_one_line() -> None:
    with pytest.raises(SettingsError) as raised:
        Settings.make(frames="line\n" * 1000)
    assert len(str(raised.value)) < 200
    assert "\n" not in str(raised.value)


def test_settings_do_not_change_after_they_were_checked() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Settings.make().frames = 0
