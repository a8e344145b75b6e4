"""Regular expressions that hold a model which understands nothing to the form of a turn."""

import re

THOUGHT = "<think>[a-z]{3,6}</think>"


def call_text(start: object, end: object) -> str:
    """A well-formed call."""
    return (
        '<tool_call>{"name": "crop_video", "arguments": {"video_path": "v", '
        f'"start_time": {start}, "end_time": {end}}}}}</tool_call>'
    )


def calls_form(*spans: tuple[object, object]) -> str:
    """A turn that thinks and calls for `spans`."""
    return THOUGHT + re.sub(r"([{}().?*+|\[\]^$\\])", r"\\\1", "".join(call_text(*span) for span in spans))


def answer_form(letters: str = "ABCD") -> str:
    """A turn that thinks and answers with one of `letters`."""
    return f"{THOUGHT}<answer>[{letters}]</answer>"
