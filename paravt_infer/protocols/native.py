"""The protocol `tools`: the model's chat template gets `tools=` and writes the tool prompt itself."""

from typing import Any

from paravt_infer.answers import ExtractedAnswer, extract_answer
from paravt_infer.protocols.base import ChatProtocol
from paravt_infer.questions import Question
from paravt_infer.tools import TOOLS


class NativeToolsProtocol(ChatProtocol):
    """Only the question is prompted; each call's result is a tool message of its own."""

    name = "tools"
    calls_tools = True
    call_ends = ("</tool_call>", "</tool_code>")

    def tools(self) -> list[dict[str, Any]] | None:
        return [tool.schema() for tool in TOOLS.values()]

    def extract_answer(self, response: str, question: Question) -> ExtractedAnswer | None:
        """A turn without calls is the answer, in a block or as plain text, unless its reasoning was truncated."""
        if "<think>" in response and "</think>" not in response and "<answer>" not in response:
            return None
        return extract_answer(response)
