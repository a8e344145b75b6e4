"""crop_video: look closely at one time window of the video (paper section 3.1.1)."""

import math
from typing import Any

from paravt_infer.times import format_time, parse_time
from paravt_infer.tools.base import ParsedCall, Tool, ToolCallError, ToolCallFault, Window

_START = ("start_time", "start")
_END = ("end_time", "end")


class CropVideo(Tool):
    """`crop_video(video_path, start_time, end_time)`. The path is ignored: the question's video is used."""

    name = "crop_video"

    def schema(self) -> dict[str, Any]:
        second = "in seconds from the video's start"
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": "Looks closely at one time window of the video and reports what it shows.",
                "parameters": {
                    "type": "object",
                    "properties": {
                        "video_path": {"type": "string", "description": "The video; there is only one."},
                        "start_time": {"type": "number", "description": f"Where the window starts, {second}."},
                        "end_time": {"type": "number", "description": f"Where the window ends, {second}."},
                    },
                    "required": ["video_path", "start_time", "end_time"],
                },
            },
        }

    def parse_window(self, call: ParsedCall, duration: float) -> Window:
        values = self._arguments(call)
        for name, value in values.items():
            if value is None:
                message = f"{name} is missing; give start_time and end_time in seconds"
                raise ToolCallError(ToolCallFault.MISSING_TIME, message)
        try:
            start, end = (parse_time(value) for value in values.values())
        except ValueError:
            name, value = next(pair for pair in values.items() if not _is_time(pair[1]))
            wrong = f"{name}={value!r}"[:80] if isinstance(value, str) else f"{name}, a {type(value).__name__},"
            message = f"{wrong} is not a time; write seconds, MM:SS or HH:MM:SS"
            raise ToolCallError(ToolCallFault.BAD_TIME, message) from None
        shown = f"the window {_format(start)} to {_format(end)}"
        if not (math.isfinite(start) and math.isfinite(end)):
            raise ToolCallError(ToolCallFault.NOT_FINITE, f"{shown} is not finite; give times inside the video")
        if start < 0 or end < 0:
            raise ToolCallError(ToolCallFault.NEGATIVE_TIME, f"{shown} has a time below 0; the video starts at 0")
        if start >= end:
            message = f"{shown} does not start before it ends; swap or widen it"
            raise ToolCallError(ToolCallFault.START_NOT_BEFORE_END, message)
        if start >= duration:
            message = f"{shown} lies beyond the video, which ends at {duration:.1f} s ({format_time(duration)})"
            raise ToolCallError(ToolCallFault.BEYOND_VIDEO, message)
        return Window(start=start, end=min(end, duration), requested=(start, end), clamped=end > duration)

    def requested_times(self, call: ParsedCall) -> tuple[float, float] | None:
        try:
            start, end = (parse_time(value) for value in self._arguments(call).values())
        except ValueError:
            return None
        return start, end

    def _arguments(self, call: ParsedCall) -> dict[str, Any]:
        """start_time and end_time as the model wrote them: by name, or by position after an optional path."""
        by_position = list(call.positional)
        if len(by_position) == 3 or (by_position and isinstance(by_position[0], str) and not _is_time(by_position[0])):
            by_position.pop(0)
        values: dict[str, Any] = {}
        for names in (_START, _END):
            named = [call.arguments[name] for name in names if call.arguments.get(name) is not None]
            values[names[0]] = named[0] if named else by_position.pop(0) if by_position else None
        return values


def _is_time(value: Any) -> bool:
    try:
        parse_time(value)
    except ValueError:
        return False
    return True


def _format(seconds: float) -> str:
    return f"{seconds:.1f}" if math.isfinite(seconds) and abs(seconds) < 1e9 else f"{seconds:g}"
