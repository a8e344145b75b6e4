"""The protocol `paravt`: several calls per turn, all evidence in one tool response (section 3.1.1).

The prompt has the structure of the paper's (workflow, format, rules; appendix "SFT cold-start system prompt") but not
its wording. For a checkpoint trained on another text, set `system_prompt` to that text.
"""

from collections.abc import Sequence
from typing import ClassVar

from paravt_infer.answers import ExtractedAnswer, extract_answer
from paravt_infer.chat import Message
from paravt_infer.protocols.base import ChatProtocol, ToolResult
from paravt_infer.questions import Question
from paravt_infer.video.types import Frame


class ParavtProtocol(ChatProtocol):
    """Think, call tools for several windows in parallel, answer from the evidence."""

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

    def tool_messages(self, results: Sequence[ToolResult]) -> list[Message]:
        """All results of a turn in one tool response."""
        parts: list[str | Frame] = []
        for number, result in enumerate(results):
            text, *rest = self.result_parts(result)
            parts += ["\n" * bool(number) + f"{number + 1}. {text}", *rest]
        return [Message(role="tool", parts=parts)]

    def extract_answer(self, response: str, question: Question) -> ExtractedAnswer | None:
        """Only an answer block ends the episode; without one the model is asked for its answer."""
        answer = extract_answer(response)
        return answer if answer is not None and answer.source == "answer_block" else None
