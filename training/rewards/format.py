"""R_fmt: the reward of a rollout's format, and how often each tag is closed.

The format is that of all the main agent's responses, turn by turn, think prefixes included: the think prefix is part of
the prompt, so a score of generated tokens alone would see every closed thought as a stray `</think>`. Sub-agents' text
and tool responses do not count, nor do tags inside a call or inside a tool response that the model wrote itself.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from paravt_infer.protocols.calls import parse_calls
from paravt_infer.rollout import Rollout
from paravt_infer.tools import ParsedCall, ToolCallFault
from paravt_training.rewards.config import RewardConfig

MIN_THOUGHT_CHARACTERS = 10
"""A shorter thought, not counting tags and repeated spaces, has no substance."""
TAGS = ("think", "tool_call", "tool_code", "answer")

_OPENING = re.compile(r"<(?:think|tool_call|tool_code|tool_response)>")
_NOT_A_CALL = re.compile(r"<think>.*?</think>|<tool_response>.*?(?:</tool_response>|\Z)", re.DOTALL)
_CLOSED_THOUGHT = re.compile(r"<think>.*?</think>", re.DOTALL)
_THOUGHT = re.compile(r"<think>(?:(.*?)</think>|(.*?)(?=<answer>|\Z))", re.DOTALL)
_ANSWER = re.compile(r"<answer>(.*?)(</answer>|\Z)", re.DOTALL)
_ANY_TAG = re.compile(r"</?\w+>|<\|\w+\|>")


@dataclass(frozen=True, kw_only=True, slots=True)
class ResponseFormat:
    """The format of one turn's response."""

    text: str
    """The response without its calls and without forged tool responses."""
    before_calls: str
    """The beginning of that text, up to the first call."""
    calls: tuple[ParsedCall, ...]
    forged: bool
    """Whether the model wrote a tool response itself."""

    @property
    def has_thought(self) -> bool:
        """Whether a thought, closed or not, has substance."""
        return _has_substance(self.text)

    @property
    def thoughts_closed(self) -> bool:
        """Whether it has no thought, or a single one that is closed."""
        opened, closed = self.text.count("<think>"), self.text.count("</think>")
        return opened == closed == len(_CLOSED_THOUGHT.findall(self.text)) <= 1

    @property
    def thought_left_open(self) -> bool:
        return self.text.rfind("<think>") > self.text.rfind("</think>")

    @property
    def answer_block(self) -> tuple[bool, bool]:
        """Whether it opens, and whether it also closes, the only answer block that a response may have."""
        outside = _CLOSED_THOUGHT.sub(" ", self.text)
        block = _ANSWER.search(outside)
        has_text = block is not None and re.search(r"\w", _ANY_TAG.sub("", block[1])) is not None
        opens = has_text and outside.count("<answer>") == 1
        return opens, opens and block is not None and bool(block[2]) and outside.count("</answer>") == 1

    @property
    def ends_in_answer(self) -> bool:
        """Whether it closes an answer block that no thought follows."""
        return self.answer_block[1] and self.text.rfind("<answer>") > self.text.rfind("</think>")

    @property
    def balanced(self) -> bool:
        """Whether every tag is closed, and no tool response is forged."""
        even = all(self.text.count(f"<{tag}>") == self.text.count(f"</{tag}>") for tag in TAGS)
        return even and not self.forged and all(map(_is_closed, self.calls))


def parse_format(response: str) -> ResponseFormat:
    """The format of one response, think prefix included; any text can be parsed.

    >>> parsed = parse_format("<think>\\nthe red one moves first</think><answer>B</answer>")
    >>> parsed.has_thought, parsed.thoughts_closed, parsed.answer_block, parsed.balanced
    (True, True, (True, True), True)
    """
    calls = tuple(parse_calls(response))
    text, position, before_calls, forged = "", 0, None, False
    for start, end, is_call in _excluded_blocks(response, calls):
        text += response[position:start] + " "  # a space, so that the two sides cannot form a tag
        if is_call and before_calls is None:
            before_calls = text
        forged, position = forged or not is_call, end
    text += response[position:]
    before_calls = text if before_calls is None else before_calls
    return ResponseFormat(text=text, before_calls=before_calls, calls=calls, forged=forged)


def _excluded_blocks(response: str, calls: tuple[ParsedCall, ...]) -> Iterator[tuple[int, int, bool]]:
    """Start and end of calls and forged tool responses outside closed thoughts, and whether it is a call."""
    blocks = sorted({call.raw for call in calls}, key=len, reverse=True)
    position = 0
    while opening := _OPENING.search(response, position):
        start, position = opening.span()
        if match := _NOT_A_CALL.match(response, start):
            position = match.end()
            if opening[0] == "<tool_response>":
                yield start, position, False
        elif block := next((block for block in blocks if response.startswith(block, start)), None):
            position = start + len(block)
            yield start, position, True


def _has_substance(text: str) -> bool:
    thoughts = (closed or unclosed for closed, unclosed in _THOUGHT.findall(text))
    return any(len(" ".join(_ANY_TAG.sub(" ", thought).split())) >= MIN_THOUGHT_CHARACTERS for thought in thoughts)


def _is_closed(call: ParsedCall) -> bool:
    return call.fault is not ToolCallFault.UNCLOSED_BLOCK and ToolCallFault.UNCLOSED_BLOCK not in call.repairs


def base_reward(rollout: Rollout, config: RewardConfig) -> float:
    """R_base, between 0 and 1.1 (the terms of the public release; the paper gives no formula).

    0.2 for a thought with substance, 0.3 for an opened and 0.2 for a closed answer (0.3, 0.2, 0.1 if `answer_suffix`
    is off), 0.3 for a thought before a valid call in the same turn, and, if any of these is earned, 0.1 for balanced
    tags. The answer must be in the last turn, not empty, and the only one there. A valid call has the required syntax
    and passed every check (from the record).
    """
    formats = [parse_format(turn.response) for turn in rollout.turns]
    if not formats:
        return 0.0
    valid = {
        call.turn
        for call in rollout.evidence
        if call.used is not None and call.syntax == "tool_call" and not call.repairs
    }
    thought, opened, closed = (0.2, 0.3, 0.2) if config.answer_suffix else (0.3, 0.2, 0.1)
    opens, closes = formats[-1].answer_block
    earned = thought * any(f.has_thought for f in formats) + opened * opens + closed * closes
    earned += 0.3 * any(turn in valid and _has_substance(f.before_calls) for turn, f in enumerate(formats))
    return earned + 0.1 * (earned > 0 and all(f.balanced for f in formats))


def anchor_reward(rollout: Rollout, config: RewardConfig) -> float:
    """R_anchor, between -gamma and alpha + beta (section 3.2.1, "Selective Anchoring").

    alpha if thoughts are closed: at least one has substance, and every turn has none or a single, closed one. beta more
    if the last turn then ends in its answer. gamma is subtracted if any turn leaves a thought open.
    """
    formats = [parse_format(turn.response) for turn in rollout.turns]
    closed = any(f.has_thought for f in formats) and all(f.thoughts_closed for f in formats)
    flows = closed and formats[-1].ends_in_answer
    left_open = any(f.thought_left_open for f in formats)
    return config.alpha * closed + config.beta * flows - config.gamma * left_open


def format_reward(rollout: Rollout, config: RewardConfig) -> float:
    """R_fmt = min(1, R_base + lambda_anchor R_anchor); its mean at sampling temperature is the paper's f_tau."""
    anchor = config.lambda_anchor * anchor_reward(rollout, config) if config.anchoring else 0.0
    return min(1.0, base_reward(rollout, config) + anchor)


def is_degenerate(rollout: Rollout) -> bool:
    """Whether a response, or all of them joined, has at least five `<|im_start|>` and under 300 characters."""
    responses = [turn.response for turn in rollout.turns]
    return any(text.count("<|im_start|>") >= 5 and len(text) < 300 for text in [*responses, "".join(responses)])


def tag_closure(rollout: Rollout) -> dict[str, tuple[int, int]]:
    """Counts of each tag opened and properly closed, as in Table 5. A closed call must also parse.

    >>> from paravt_infer import Question
    >>> from paravt_infer.rollout import Turn
    >>> tag_closure(Rollout(question=Question(video="v", text="?"), turns=[Turn(text="<think>a</think><answer>B")]))
    {'think': (1, 1), 'tool_call': (0, 0), 'tool_code': (0, 0), 'answer': (1, 0)}
    """
    counts = dict.fromkeys(TAGS, (0, 0))

    def add(tag: str, opened: int, closed: int) -> None:
        counts[tag] = counts[tag][0] + opened, counts[tag][1] + closed

    for parsed in (parse_format(turn.response) for turn in rollout.turns):
        add("think", parsed.text.count("<think>"), len(_CLOSED_THOUGHT.findall(parsed.text)))
        outside = _CLOSED_THOUGHT.sub(" ", parsed.text)
        add("answer", outside.count("<answer>"), sum(bool(closing) for _, closing in _ANSWER.findall(outside)))
        for call in parsed.calls:
            add(call.syntax, 1, call.fault is None and _is_closed(call))
    return counts
