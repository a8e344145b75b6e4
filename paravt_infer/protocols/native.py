"""`tools`: the model's own chat template is given `tools=` and writes the tool prompt itself."""

from typing import Any

from paravt_infer.answers import ExtractedAnswer, extract_answer
from paravt_infer.protocols.base import ChatProtocol
from paravt_infer.protocols.calls import parse_calls
from paravt_infer.questions import Question
from paravt_infer.tools import TOOLS, ParsedCall


class NativeToolsProtocol(ChatProtocol):
    """No words of ours but the question; each call's evidence is a tool message of its own."""

    name = "tools"
    calls_tools = True
    call_ends = ("</tool_call>", "</tool_code>")

    def tools(self) -> list[dict[str, Any]] | None:
        return [tool.schema() for tool in TOOLS.values()]

    def parse_calls(self, response: str) -> list[ParsedCall]:
        return parse_calls(response)

    def extract_answer(self, response: str, question: Question) -> ExtractedAnswer | None:
        """A turn without calls is the answer, in a block or in plain words; one cut inside its thoughts is none."""
        if "<think>" in response and "</think>" not in response and "<answer>" not in response:
            return None
        return extract_answer(response)
