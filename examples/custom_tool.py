"""Add a tool: `watch_ending(seconds)` inspects the last seconds of the video.

A tool turns a call's arguments into a window. Decoding, sub-agents, time limits and records are the engine's.
"""

import asyncio
from typing import Any

from paravt_infer import EngineSpec, Settings
from paravt_infer.bundled import sample_videos
from paravt_infer.tools import TOOLS, ParsedCall, Tool, ToolCallError, ToolCallFault, Window


class WatchEnding(Tool):
    """`watch_ending(seconds)`. The model is not trusted: what it wrote is checked, then cut to the video."""

    name = "watch_ending"

    def schema(self) -> dict[str, Any]:
        seconds = {"type": "number", "description": "How many seconds before the end to start."}
        parameters = {"type": "object", "properties": {"seconds": seconds}, "required": ["seconds"]}
        description = "Looks closely at the end of the video and reports what it shows."
        return {
            "type": "function",
            "function": {"name": self.name, "description": description, "parameters": parameters},
        }

    def parse_window(self, call: ParsedCall, duration: float) -> Window:
        seconds = call.arguments.get("seconds")
        if not isinstance(seconds, int | float) or not 0 < seconds < float("inf"):
            # The message goes back to the model, which can then correct itself.
            raise ToolCallError(
                ToolCallFault.BAD_TIME, f"seconds={seconds!r} is not a number above 0; write seconds=10"
            )
        start = duration - seconds
        return Window(start=max(0.0, start), end=duration, requested=(start, duration), clamped=start < 0)


async def main() -> None:
    TOOLS[WatchEnding.name] = WatchEnding()
    sample = sample_videos()[0]
    # A trained model reads the schema (protocol "tools") or the system prompt. The checkpoint that ships has learned
    # crop_video only, so its first turn is held to a call of the new tool.
    call = r'<tool_call>\{"name": "watch_ending", "arguments": \{"seconds": 8\}\}</tool_call>'
    settings = Settings(frames=16, turn_regex=(r"<think>\nI look at the end\.\n</think>\n" + call,))
    async with EngineSpec().open(settings) as engine:
        rollout = await engine.ask(sample.path, "What is seen at 00:41?")
    for evidence in rollout.evidence:
        print(f"{evidence.tool} {evidence.used} {evidence.status}: {evidence.text}")
    print(f"answer: {rollout.answer}")


if __name__ == "__main__":
    asyncio.run(main())
