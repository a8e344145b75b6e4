"""R_fmt: what the form of a rollout is worth, and how often each tag is closed.

The form is that of all the main agent's responses, turn by turn, think prefixes included: the think prefix stands in
the prompt, so a score of generated tokens alone would take every closed thought for a stray `</think>`. Sub-agents'
words and tool responses do not count. What stands inside a call, or inside a tool response that the model wrote
itself, has no form.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from paravt_infer.protocols.calls import parse_calls
from paravt_infer.rollout import Rollout
from paravt_infer.tools import ParsedCall, ToolCallFault
from paravt_training.rewards.config import RewardConfig

SUBSTANCE = 10
"""A thought of fewer characters, tags and repeated spaces aside, is none."""
TAGS = ("think", "tool_call", "tool_code", "answer")

_OPENING = re.compile(r"<(?:think|tool_call|tool_code|tool_response)>")
_NO_CALL = re.compile(r"<think>.*?</think>|<tool_response>.*?(?:</tool_response>|\Z)", re.DOTALL)
_CLOSED_THOUGHT = re.compile(r"<think>.*?</think>", re.DOTALL)
_THOUGHT = re.compile(r"<think>(?:(.*?)</think>|(.*?)(?=<answer>|\Z))", re.DOTALL)
_ANSWER = re.compile(r"<answer>(.*?)(</answer>|\Z)", re.DOTALL)
_ANY_TAG = re.compile(r"</?\w+>|<\|\w+\|>")


@dataclass(frozen=True, kw_only=True, slots=True)
class ResponseFormat:
    """The tags of one turn's response."""

    text: str
    """The response without its calls and without tool responses of the model's own making."""
    lead: str
    """Of that, what stands before the first call."""
    calls: tuple[ParsedCall, ...]
    forged: bool
    """Whether it holds a tool response."""

    @property
    def thinks(self) -> bool:
        """Whether a thought, closed or not, has substance."""
        return _has_substance(self.text)

    @property
    def closes(self) -> bool:
        """Whether it has no thought, or just one that is closed."""
        opened, closed = self.text.count("<think>"), self.text.count("</think>")
        return opened == closed == len(_CLOSED_THOUGHT.findall(self.text)) <= 1

    @property
    def never_closes(self) -> bool:
        return self.text.rfind("<think>") > self.text.rfind("</think>")

    @property
    def answers(self) -> tuple[bool, bool]:
        """Whether it opens, and whether it also closes, the one answer block that a response may have."""
        outside = _CLOSED_THOUGHT.sub(" ", self.text)
        block = _ANSWER.search(outside)
        says = block is not None and re.search(r"\w", _ANY_TAG.sub("", block[1])) is not None
        opens = says and outside.count("<answer>") == 1
        return opens, opens and block is not None and bool(block[2]) and outside.count("</answer>") == 1

    @property
    def answers_last(self) -> bool:
        """Whether it closes an answer that no thought follows."""
        return self.answers[1] and self.text.rfind("<answer>") > self.text.rfind("</think>")

    @property
    def balanced(self) -> bool:
        """Whether every tag is closed, and none is there that is not the model's to write."""
        even = all(self.text.count(f"<{tag}>") == self.text.count(f"</{tag}>") for tag in TAGS)
        return even and not self.forged and all(map(_is_closed, self.calls))


def response_format(response: str) -> ResponseFormat:
    """The shape of one response, prefix included. Any text has one.

    >>> seen = response_format("<think>\\nthe red one moves first</think><answer>B</answer>")
    >>> seen.thinks, seen.closes, seen.answers, seen.balanced
    (True, True, (True, True), True)
    """
    calls = tuple(parse_calls(response))
    kept, at, lead, forged = "", 0, None, False
    for start, end, is_call in _hidden(response, calls):
        kept += response[at:start] + " "  # a space, so that no tag comes together from both sides
        if is_call and lead is None:
            lead = kept
        forged, at = forged or not is_call, end
    kept += response[at:]
    return ResponseFormat(text=kept, lead=kept if lead is None else lead, calls=calls, forged=forged)


def _hidden(response: str, calls: tuple[ParsedCall, ...]) -> Iterator[tuple[int, int, bool]]:
    """Where calls and self-written tool responses stand, outside closed thoughts: start, end, whether it is a call."""
    blocks = sorted({call.raw for call in calls}, key=len, reverse=True)
    at = 0
    while opening := _OPENING.search(response, at):
        start, at = opening.span()
        if whole := _NO_CALL.match(response, start):
            at = whole.end()
            if opening[0] == "<tool_response>":
                yield start, at, False
        elif block := next((block for block in blocks if response.startswith(block, start)), None):
            at = start + len(block)
            yield start, at, True


def _has_substance(text: str) -> bool:
    thoughts = (closed or left_open for closed, left_open in _THOUGHT.findall(text))
    return any(len(" ".join(_ANY_TAG.sub(" ", thought).split())) >= SUBSTANCE for thought in thoughts)


def _is_closed(call: ParsedCall) -> bool:
    return call.fault is not ToolCallFault.UNCLOSED_BLOCK and ToolCallFault.UNCLOSED_BLOCK not in call.repairs


def base_reward(rollout: Rollout, config: RewardConfig) -> float:
    """R_base, between 0 and 1.1 (the public release's terms; the paper prints no formula).

    0.2 for a thought with substance, 0.3 for an answer opened and 0.2 for one closed (0.3, 0.2, 0.1 where
    `answer_suffix` is off), 0.3 for a thought before a valid call in one turn, and 0.1, where any of these is earned,
    for tags that all balance. The answer is that of the last turn, not empty, and the only one there. A call is valid
    that was written as asked for and passed every check (from the record).
    """
    shapes = [response_format(turn.response) for turn in rollout.turns]
    if not shapes:
        return 0.0
    valid = {
        call.turn
        for call in rollout.evidence
        if call.used is not None and call.syntax == "tool_call" and not call.repairs
    }
    thought, opened, closed = (0.2, 0.3, 0.2) if config.answer_suffix else (0.3, 0.2, 0.1)
    opens, closes = shapes[-1].answers
    earned = thought * any(seen.thinks for seen in shapes) + opened * opens + closed * closes
    earned += 0.3 * any(number in valid and _has_substance(seen.lead) for number, seen in enumerate(shapes))
    return earned + 0.1 * (earned > 0 and all(seen.balanced for seen in shapes))


def anchor_reward(rollout: Rollout, config: RewardConfig) -> float:
    """R_anchor, between -gamma and alpha + beta (section 3.2.1, "Selective Anchoring").

    alpha where thoughts are closed: there is one with substance, and each turn has none or just one, closed. beta
    more where the last turn then ends in its answer. gamma is taken off where any turn leaves a thought open.
    """
    shapes = [response_format(turn.response) for turn in rollout.turns]
    closes = any(seen.thinks for seen in shapes) and all(seen.closes for seen in shapes)
    flows = closes and shapes[-1].answers_last
    return config.alpha * closes + config.beta * flows - config.gamma * any(seen.never_closes for seen in shapes)


def format_reward(rollout: Rollout, config: RewardConfig) -> float:
    """R_fmt = min(1, R_base + lambda_anchor R_anchor); its mean at sampling temperature is the paper's f_tau."""
    anchor = config.lambda_anchor * anchor_reward(rollout, config) if config.anchoring else 0.0
    return min(1.0, base_reward(rollout, config) + anchor)


def is_degenerate(rollout: Rollout) -> bool:
    """Whether a response, or all of them together, has five `<|im_start|>` in under 300 characters."""
    responses = [turn.response for turn in rollout.turns]
    return any(text.count("<|im_start|>") >= 5 and len(text) < 300 for text in [*responses, "".join(responses)])


def tag_closure(rollout: Rollout) -> dict[str, tuple[int, int]]:
    """How often each tag was opened and properly closed, as in Table 5. A call is closed if it can also be read.

    >>> from paravt_infer import Question
    >>> from paravt_infer.rollout import Turn
    >>> tag_closure(Rollout(question=Question(video="v", text="?"), turns=[Turn(text="<think>a</think><answer>B")]))
    {'think': (1, 1), 'tool_call': (0, 0), 'tool_code': (0, 0), 'answer': (1, 0)}
    """
    counts = dict.fromkeys(TAGS, (0, 0))

    def add(tag: str, opened: int, closed: int) -> None:
        counts[tag] = counts[tag][0] + opened, counts[tag][1] + closed

    for seen in (response_format(turn.response) for turn in rollout.turns):
        add("think", seen.text.count("<think>"), len(_CLOSED_THOUGHT.findall(seen.text)))
        outside = _CLOSED_THOUGHT.sub(" ", seen.text)
        add("answer", outside.count("<answer>"), sum(bool(closing) for _, closing in _ANSWER.findall(outside)))
        for call in seen.calls:
            add(call.syntax, 1, call.fault is None and _is_closed(call))
    return counts
