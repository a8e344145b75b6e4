"""Sequential traces to parallel ones, as the paper defines it (appendix "Sequential to Parallel Conversion").

Adjacent calls become one turn where they are independent: their windows do not overlap, and neither response refers to
the other's window. A call that refines an earlier one keeps its own turn. Frames that a call returned become text: what
the assistant writes about them afterwards. The rules:

- The description of frames is the assistant's next turn without plans ("let me ...", "I should ...") and conclusions
  ("the answer is ..."); if nothing remains, what later turns say about times in the window.
- A text refers to a window by a time inside it that is not in the text's own window, or by pointing back ("the previous
  clip"). Clauses that do so are left out of a description, as long as others remain. A plan that refines ("zoom in",
  "check again") keeps its call separate.
- The plans of merged turns join the first turn's thought: all windows are requested before any is seen.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from paravt_infer.answers import TimeSpan
from paravt_infer.protocols import ChatProtocol, ToolResult, get_protocol
from paravt_infer.questions import Question
from paravt_infer.times import parse_time
from paravt_training.data.check import call_window, conversation_faults
from paravt_training.data.rows import ConversationRow, InvalidRow, JsonMessage, RowError, message_media, message_text

_INLINE_RESPONSE = re.compile(r"<tool_response>(.*?)</tool_response>", re.DOTALL)
_OUTSIDE_THOUGHT = re.compile(r"<(tool_call|answer)>.*?(?:</\1>|\Z)|</?think>", re.DOTALL)
_CLAUSE = re.compile(
    r"(?<=[.!?;])\s+|\n+"
    r"|(?:,\s+(?:(?:so|and|then|therefore|but)\s+)?|\s+(?:so|and then|then|therefore),?\s+)(?=(?:I|we|let)\b)"
)
_INSPECT = r"(?:look|check|zoom|inspect|crop|examine|verify|search|watch)\b"
_PLAN_OR_CONCLUSION = re.compile(
    r"\blet(?:'s| me| us)\b"
    r"|\b(?:I|we)(?:'ll|'m going| will| should| must| need| want| have to| am going| are going)\b"
    r"|\b(?:must|should|needs? to|has to) be (?:seen|looked|checked|inspected|examined|verified|watched|cropped)\b"
    rf"|\b(?:I|we)(?: now| next| then)? {_INSPECT}|^(?:(?:next|now|then|also),?\s+)?{_INSPECT}"
    r"|\b(?:the|my|final|correct|right) (?:answer|option|choice)\b|\b(?:answer is|option [A-Z])\b",
    re.IGNORECASE,
)
_POINTS_BACK = re.compile(
    r"\b(?:previous|earlier|preceding|prior|former|first)\s+(?:clip|crop|call|window|segment|response|result|interval)",
    re.IGNORECASE,
)
_REFINES = re.compile(
    r"\b(?:refin\w+|narrow\w*|zoom\w* in|adjust\w*|again|re-?(?:check|examin|inspect|visit|watch|crop)\w*)",
    re.IGNORECASE,
)
_TIME = re.compile(
    r"(?<![\d.:])(?:(?:\d{1,2}:)?\d{1,3}:\d{2}(?:\.\d+)?(?![\d:])"
    r"|\d+(?:\.\d+)?(?=\s*(?:s|secs?|seconds?)\b"
    r"|\s*(?:-|–|—|to|and|,)\s*\d+(?:\.\d+)?\s*(?:(?:s|secs?|seconds?)\b|\])|\]))"
)
"""`MM:SS`, `HH:MM:SS`, a number of seconds, or either end of a range of seconds or of `[start, end]`."""
_NO_TEXT = re.compile(r"(?:the tool executed successfully|\d+ frames|image|video|[\W_])*", re.IGNORECASE)
_ITEM_NUMBER = re.compile(r"^\s*1\. ")
_WINDOW_PREFIX = re.compile(r"\[\d+\.\d s - \d+\.\d s\] ")


@dataclass(kw_only=True, slots=True)
class _AssistantTurn:
    """An assistant message and the messages before the next one."""

    message: JsonMessage
    calls: list[str]
    """Calls in it, as written."""
    windows: list[TimeSpan]
    """Windows of the calls."""
    responses: list[JsonMessage] = field(default_factory=list)
    """Responses to the calls."""
    after: list[JsonMessage] = field(default_factory=list)
    """Other messages to the assistant."""
    description: str = ""
    """What the window of its only call shows: the response, or text from later turns."""

    @property
    def returns_frames(self) -> bool:
        """Whether the responses are frames and not text."""
        return bool(self.responses) and all(
            message_media(message) or _NO_TEXT.fullmatch(_untagged(message_text(message))) for message in self.responses
        )

    @property
    def clauses(self) -> list[str]:
        thought = _OUTSIDE_THOUGHT.sub("\n", message_text(self.message))
        return [clause.strip() for clause in _CLAUSE.split(thought) if clause.strip()]

    @property
    def plans(self) -> list[str]:
        return [clause for clause in self.clauses if _PLAN_OR_CONCLUSION.search(clause)]


def to_parallel(messages: Sequence[JsonMessage], protocol: ChatProtocol | None = None) -> list[JsonMessage]:
    """The conversation with independent adjacent calls in one turn, and text in place of frames.

    All calls are kept, verbatim and in order. Turns with several calls, or none, are kept as they are.

    Args:
        messages: a trace without faults (see `conversation_faults`), perhaps with responses inside assistant messages;
            it is not modified.
        protocol: that writes the responses; `paravt` by default.

    Raises:
        RowError: `no_summary`, nothing describes the frames of a call; `several_calls`, a turn with several calls
            returned frames; or the fault of a call.

    >>> call = '<tool_call>{{"name": "crop_video", "arguments": {{"start_time": {}, "end_time": {}}}}}</tool_call>'
    >>> frames = {"role": "tool", "content": [{"type": "video", "video": "v.mp4"}]}
    >>> trace = [
    ...     {"role": "user", "content": "Which came first?"},
    ...     {"role": "assistant", "content": "<think>Two parts matter.</think>" + call.format(30, 50)}, frames,
    ...     {"role": "assistant", "content": "<think>A red car.</think>" + call.format(130, 145)}, frames,
    ...     {"role": "assistant", "content": "<think>A blue car.</think><answer>red</answer>"},
    ... ]
    >>> [message["role"] for message in to_parallel(trace)], to_parallel(trace)[2]["content"]
    (['user', 'assistant', 'tool', 'assistant'], '1. [30.0 s - 50.0 s] A red car.\\n2. [130.0 s - 145.0 s] A blue car.')
    """
    protocol = protocol or get_protocol("paravt")
    opening, turns = _split_turns(separate_responses(messages))
    converted = list(opening)
    group: list[_AssistantTurn] = []
    for number, turn in enumerate(turns):
        single = len(turn.calls) == 1 and bool(turn.responses)
        if single:
            earlier = [window for previous in turns[:number] for window in previous.windows]
            described = turn.returns_frames
            turn.description = _describe(turn, turns[number + 1 :], earlier) if described else _response_text(turn)
        elif turn.returns_frames:
            raise RowError("several_calls", f"turn {number + 1} has {len(turn.calls)} calls that returned frames")
        joins = single and bool(group) and not group[-1].after and all(_independent(other, turn) for other in group)
        if not joins:
            converted += _merge(group, protocol)
            group = []
        if single:
            group.append(turn)
        else:
            converted += [turn.message, *turn.responses, *turn.after]
    return converted + _merge(group, protocol)


@dataclass(kw_only=True, slots=True)
class ConversionCounts:
    """Counts of the rows read, changed and dropped."""

    rows: int = 0
    changed: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    """By fault."""


def convert_rows(
    rows: Iterable[ConversationRow | InvalidRow], counts: ConversionCounts
) -> Iterator[ConversationRow | InvalidRow]:
    """The rows as parallel traces, those with faults as `InvalidRow`; `counts` is updated along the way.

    The `extra_info.form` of a changed row is `parallel`.
    """
    for row in rows:
        counts.rows += 1
        if isinstance(row, ConversationRow):
            try:
                for error in conversation_faults(separate_responses(row.messages), row.info):
                    raise error
                messages = to_parallel(row.messages)
                if messages != row.messages:
                    counts.changed += 1
                    row = replace(row, messages=messages, info={**row.info, "form": "parallel"})
            except RowError as error:
                row = row.invalid(error)
        if isinstance(row, InvalidRow):
            counts.dropped[row.fault] += 1
        yield row


def separate_responses(messages: Sequence[JsonMessage]) -> list[JsonMessage]:
    """Moves responses inside assistant messages into tool messages of their own.

    >>> inline = {"role": "assistant", "content": "a<tool_response>r</tool_response>b"}
    >>> [message["role"] for message in separate_responses([inline])]
    ['assistant', 'tool', 'assistant']
    """
    separated: list[JsonMessage] = []
    for message in messages:
        pieces = _INLINE_RESPONSE.split(message_text(message)) if message["role"] == "assistant" else []
        if len(pieces) < 2:
            separated.append(message)
            continue
        roles = ("assistant", "tool")
        parts = [{"role": roles[index % 2], "content": piece.strip()} for index, piece in enumerate(pieces)]
        separated += [part for part in parts if part["role"] == "tool" or part["content"]]
    return separated


def _split_turns(messages: Sequence[JsonMessage]) -> tuple[list[JsonMessage], list[_AssistantTurn]]:
    """The messages before the first assistant message, and the turns."""
    opening: list[JsonMessage] = []
    turns: list[_AssistantTurn] = []
    for message in messages:
        if message["role"] == "assistant":
            calls = get_protocol("paravt").parse_calls(message_text(message))
            windows = list(map(call_window, calls))
            turns.append(_AssistantTurn(message=message, calls=[call.raw for call in calls], windows=windows))
        elif not turns:
            opening.append(message)
        else:
            turn = turns[-1]
            responds = message["role"] == "tool" or "<tool_response>" in message_text(message) or message_media(message)
            (turn.responses if turn.calls and responds else turn.after).append(message)
    return opening, turns


def _untagged(text: str) -> str:
    return re.sub(r"</?tool_response>", "", text).strip()


def _response_text(turn: _AssistantTurn) -> str:
    return _ITEM_NUMBER.sub("", "\n".join(_untagged(message_text(message)) for message in turn.responses))


def _describe(turn: _AssistantTurn, later: Sequence[_AssistantTurn], earlier: Sequence[TimeSpan]) -> str:
    """What later turns say about the frames that the call of `turn` returned."""
    window = turn.windows[0]
    for number, follower in enumerate(later):
        clauses = [clause for clause in follower.clauses if not _PLAN_OR_CONCLUSION.search(clause)]
        if number:
            clauses = [clause for clause in clauses if _inside(_times(clause), window)]
        own = [clause for clause in clauses if not any(_refers_back(clause, window, other) for other in earlier)]
        if clauses:
            return " ".join(own or clauses)
    raise RowError("no_summary", f"no later turn describes the window {window[0]:g} to {window[1]:g} s")


def _times(text: str) -> list[float]:
    """The times in a text, in seconds."""
    times = []
    for found in _TIME.findall(text):
        with suppress(ValueError):  # 12:75, a score
            times.append(parse_time(found))
    return times


def _inside(times: Sequence[float], window: TimeSpan) -> list[float]:
    return [time for time in times if window[0] <= time <= window[1]]


def _mentions(text: str, own: TimeSpan, other: TimeSpan) -> bool:
    """Whether a text about the window `own` mentions a time in `other`."""
    inside = _inside(_times(text), other)
    return len(inside) > len(_inside(inside, own))


def _refers_back(text: str, own: TimeSpan, other: TimeSpan) -> bool:
    """Whether a text about the window `own` refers to `other`, which was seen before."""
    return _mentions(text, own, other) or bool(_POINTS_BACK.search(text))


def _independent(first: _AssistantTurn, second: _AssistantTurn) -> bool:
    """Whether the second call could have been made before the first one returned."""
    (window,), (other,) = first.windows, second.windows
    if window[0] < other[1] and other[0] < window[1]:
        return False
    if any(_POINTS_BACK.search(plan) or _REFINES.search(plan) for plan in second.plans):
        return False
    return not _mentions(first.description, window, other) and not _refers_back(second.description, other, window)


def _merge(group: Sequence[_AssistantTurn], protocol: ChatProtocol) -> list[JsonMessage]:
    """The calls of a group as one turn, their responses as the next one."""
    if not group:
        return []
    first = group[0]
    if len(group) == 1 and not first.returns_frames:
        return [first.message, *first.responses, *first.after]
    results = [
        ToolResult(window=None if _WINDOW_PREFIX.match(turn.description) else turn.windows[0], text=turn.description)
        for turn in group
    ]
    message, after = first.message, group[-1].after
    if len(group) > 1:
        text = message_text(message).replace(first.calls[0], "\n".join(turn.calls[0] for turn in group), 1)
        thought, closed, rest = text.partition("</think>")
        if closed:
            planned = _times(thought)
            plans = [plan for turn in group[1:] for plan in turn.plans if not _inside(planned, turn.windows[0])]
            end = len(thought.rstrip())
            text = " ".join([thought[:end], *plans]) + thought[end:] + closed + rest
        message = {"role": "assistant", "content": text}
        # The request for an answer after the last allowed turn goes: there are fewer turns now.
        requests = [request.text for request in protocol.ask_for_answer(Question(video="-", text="-"))]
        after = [other for other in after if message_text(other) not in requests]
    responses = [{"role": response.role, "content": response.text} for response in protocol.tool_messages(results)]
    return [message, *responses, *after]
