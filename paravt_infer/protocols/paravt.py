"""`paravt`: the tool prompt of ParaVT, several calls a turn, all evidence in one tool response (section 3.1.1).

The prompt keeps the paper's structure (workflow, format, rules; appendix "SFT cold-start system prompt") in
words of its own. To use a checkpoint with the very text it was trained on, give that text as `system_prompt`.
"""

from collections.abc import Sequence
from typing import ClassVar

from paravt_infer.answers import ExtractedAnswer, extract_answer
from paravt_infer.chat import Message
from paravt_infer.protocols.base import ChatProtocol, ToolResult
from paravt_infer.protocols.calls import parse_calls
from paravt_infer.questions import Question
from paravt_infer.tools import ParsedCall
from paravt_infer.video.types import Frame


class ParavtProtocol(ChatProtocol):
    """Think, call for windows in parallel, answer from the evidence."""

    name = "paravt"
    calls_tools = True
    call_ends = ("</tool_call>", "</tool_code>")
    default_system: ClassVar[str | None] = """\
You answer questions about a video, of which you see an overview.

# How to work
1. Reason inside <think>...</think>: which parts of the video hold the evidence?
2. Look at those parts closely with <tool_call>...</tool_call> blocks. One turn may hold several blocks, each \
for another time window; the windows are inspected in parallel.
3. When the <tool_response> has come, give the final answer inside <answer>...</answer>.

# Form of a turn
<think>reasoning</think>
<tool_call>{"name": "crop_video", "arguments": {"video_path": "...", "start_time": ..., "end_time": ...}}</tool_call>
(further <tool_call> blocks as needed)

and, once the tool responses are there:
<answer>final answer</answer>

# Rules
- Calls take the JSON form above and no other: no <tool_code>, no Python.
- Times are seconds from the start of the video.
- Never ask for the same window twice."""

    def tool_messages(self, told: Sequence[ToolResult]) -> list[Message]:
        """All evidence of a turn in one tool response."""
        parts: list[str | Frame] = []
        for number, one in enumerate(told):
            text, *rest = self.result_parts(one)
            parts += ["\n" * bool(number) + f"{number + 1}. {text}", *rest]
        return [Message(role="tool", parts=parts)]

    def parse_calls(self, response: str) -> list[ParsedCall]:
        return parse_calls(response)

    def extract_answer(self, response: str, question: Question) -> ExtractedAnswer | None:
        """Only an answer block ends the episode; without one the answer is asked for."""
        reading = extract_answer(response)
        return reading if reading is not None and reading.source == "answer_block" else None
