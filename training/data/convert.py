"""Sequential traces to parallel ones, as the paper defines it (appendix "Sequential to Parallel Conversion").

Adjacent calls become one turn where they are independent: their windows do not overlap, and what they returned
does not refer to the other's window. A call that refines an earlier one stays on its own turn. Frames that a call
returned become words: what the assistant says of them when it has seen them. Here that is said in rules:

- What is seen is what the assistant's next turn says, less what it plans ("let me ...", "I should ...") and
  concludes ("the answer is ..."); where that says nothing of it, what later turns say of times in the window.
- A text refers to a window by a time that lies in it and not in the text's own, or by pointing back ("the previous
  clip"). What is said of frames may look back at other windows beside telling what it sees, as a conclusion does;
  then that part is left out of the summary. A plan that refines ("zoom in", "check again") keeps its call apart.
- The plans of merged turns join the first turn's thought: all its windows are asked for before any is seen.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from paravt_infer.chat import Message
from paravt_infer.protocols import ChatProtocol, ToolResult, get_protocol
from paravt_infer.questions import Question
from paravt_infer.times import parse_time
from paravt_training.data.check import call_window, faults
from paravt_training.data.rows import BadRow, ConversationRow, JsonMessage, RowFault, media_of, text_of

Span = tuple[float, float]
"""A window, in seconds."""

_INLINE = re.compile(r"<tool_response>(.*?)</tool_response>", re.DOTALL)
_NOT_THOUGHT = re.compile(r"<(tool_call|answer)>.*?(?:</\1>|\Z)|</?think>", re.DOTALL)
_CLAUSE = re.compile(
    r"(?<=[.!?;])\s+|\n+"
    r"|(?:,\s+(?:(?:so|and|then|therefore|but)\s+)?|\s+(?:so|and then|then|therefore),?\s+)(?=(?:I|we|let)\b)"
)
_LOOK = r"(?:look|check|zoom|inspect|crop|examine|verify|search|watch)\b"
_NOT_SEEN = re.compile(
    r"\blet(?:'s| me| us)\b"
    r"|\b(?:I|we)(?:'ll|'m going| will| should| must| need| want| have to| am going| are going)\b"
    r"|\b(?:must|should|needs? to|has to) be (?:seen|looked|checked|inspected|examined|verified|watched|cropped)\b"
    rf"|\b(?:I|we)(?: now| next| then)? {_LOOK}|^(?:(?:next|now|then|also),?\s+)?{_LOOK}"
    r"|\b(?:the|my|final|correct|right) (?:answer|option|choice)\b|\b(?:answer is|option [A-Z])\b",
    re.IGNORECASE,
)
"""A plan or a conclusion."""
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
"""`MM:SS`, `HH:MM:SS`, a number of seconds, either end of a range of them or of `[start, end]`."""
_NO_WORDS = re.compile(r"(?:the tool executed successfully|\d+ frames|image|video|[\W_])*", re.IGNORECASE)
_NUMBER = re.compile(r"^\s*1\. ")
_OWN_SPAN = re.compile(r"\[\d+\.\d s - \d+\.\d s\] ")


@dataclass(kw_only=True, slots=True)
class _Turn:
    """An assistant's message, and what comes before its next one."""

    said: JsonMessage
    calls: list[str]
    """Its calls, as written."""
    windows: list[Span]
    """Theirs."""
    returned: list[JsonMessage] = field(default_factory=list)
    """What the calls returned."""
    after: list[JsonMessage] = field(default_factory=list)
    """What else is said to the assistant."""
    words: str = ""
    """What the one call's window shows, in words: returned, or drawn from later turns."""

    @property
    def frames(self) -> bool:
        """Whether the calls returned frames and not words."""
        return bool(self.returned) and all(
            media_of(one) or _NO_WORDS.fullmatch(_untagged(text_of(one))) for one in self.returned
        )

    @property
    def clauses(self) -> list[str]:
        thought = _NOT_THOUGHT.sub("\n", text_of(self.said))
        return [clause.strip() for clause in _CLAUSE.split(thought) if clause.strip()]

    @property
    def plans(self) -> list[str]:
        return [clause for clause in self.clauses if _NOT_SEEN.search(clause)]


def to_parallel(messages: Sequence[JsonMessage], protocol: ChatProtocol | None = None) -> list[JsonMessage]:
    """The conversation with independent adjacent calls in one turn, and words in place of frames.

    All calls stay, word for word and in their order. Turns with several calls, or none, stay as they are.

    Args:
        messages: a trace without faults (`paravt_training.data.check.faults`), perhaps with responses inside the
            assistant's messages; it is not changed.
        protocol: whose words tell what calls returned; `paravt` by default.

    Raises:
        RowFault: `no_summary`, nothing is said of what a call's frames show; `several_calls`, a turn with several
            calls returned frames; or a call's own fault.

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
    opening, turns = _turns(unfold(messages))
    done = list(opening)
    group: list[_Turn] = []
    for number, turn in enumerate(turns):
        single = len(turn.calls) == 1 and bool(turn.returned)
        if single:
            earlier = [window for one in turns[:number] for window in one.windows]
            turn.words = _drawn(turn, turns[number + 1 :], earlier) if turn.frames else _returned(turn)
        elif turn.frames:
            raise RowFault("several_calls", f"turn {number + 1} has {len(turn.calls)} calls that returned frames")
        joins = single and bool(group) and not group[-1].after and all(_independent(one, turn) for one in group)
        if not joins:
            done += _told(group, protocol)
            group = []
        if single:
            group.append(turn)
        else:
            done += [turn.said, *turn.returned, *turn.after]
    return done + _told(group, protocol)


@dataclass(kw_only=True, slots=True)
class ConversionCounts:
    """What became of the rows."""

    rows: int = 0
    changed: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    """By fault."""


def converted(rows: Iterable[ConversationRow | BadRow], report: ConversionCounts) -> Iterator[ConversationRow | BadRow]:
    """The rows as parallel traces, those with faults as `BadRow`; `report` counts as they pass.

    A row that changes says so: its `extra_info.form` is `parallel`.
    """
    for row in rows:
        report.rows += 1
        if isinstance(row, ConversationRow):
            try:
                for fault in faults(unfold(row.messages), row.info):
                    raise fault
                messages = to_parallel(row.messages)
                if messages != row.messages:
                    report.changed += 1
                    row = replace(row, messages=messages, info={**row.info, "form": "parallel"})
            except RowFault as fault:
                row = row.bad(fault)
        if isinstance(row, BadRow):
            report.left_out[row.fault] += 1
        yield row


def unfold(messages: Sequence[JsonMessage]) -> list[JsonMessage]:
    """Responses that stand inside an assistant's message as tool turns of their own.

    >>> [one["role"] for one in unfold([{"role": "assistant", "content": "a<tool_response>r</tool_response>b"}])]
    ['assistant', 'tool', 'assistant']
    """
    unfolded: list[JsonMessage] = []
    for message in messages:
        pieces = _INLINE.split(text_of(message)) if message["role"] == "assistant" else []
        if len(pieces) < 2:
            unfolded.append(message)
            continue
        roles = ("assistant", "tool")
        said = [{"role": roles[number % 2], "content": piece.strip()} for number, piece in enumerate(pieces)]
        unfolded += [one for one in said if one["role"] == "tool" or one["content"]]
    return unfolded


def _turns(messages: Sequence[JsonMessage]) -> tuple[list[JsonMessage], list[_Turn]]:
    """What is said before the assistant speaks, and its turns."""
    opening: list[JsonMessage] = []
    turns: list[_Turn] = []
    for message in messages:
        if message["role"] == "assistant":
            called = [(call.raw, call_window(call)) for call in get_protocol("paravt").parse_calls(text_of(message))]
            turns.append(_Turn(said=message, calls=[raw for raw, _ in called], windows=[span for _, span in called]))
        elif not turns:
            opening.append(message)
        else:
            turn = turns[-1]
            responds = message["role"] == "tool" or "<tool_response>" in text_of(message) or media_of(message)
            (turn.returned if turn.calls and responds else turn.after).append(message)
    return opening, turns


def _untagged(text: str) -> str:
    return re.sub(r"</?tool_response>", "", text).strip()


def _returned(turn: _Turn) -> str:
    return _NUMBER.sub("", "\n".join(_untagged(text_of(message)) for message in turn.returned))


def _drawn(turn: _Turn, later: Sequence[_Turn], earlier: Sequence[Span]) -> str:
    """What later turns say of the frames that `turn`'s call returned."""
    own = turn.windows[0]
    for number, follower in enumerate(later):
        seen = [clause for clause in follower.clauses if not _NOT_SEEN.search(clause)]
        if number:
            seen = [clause for clause in seen if _inside(_times(clause), own)]
        plain = [clause for clause in seen if not any(_looks_back(clause, own, other) for other in earlier)]
        if seen:
            return " ".join(plain or seen)
    raise RowFault("no_summary", f"no later turn says what the window {own[0]:g} to {own[1]:g} s shows")


def _times(text: str) -> list[float]:
    """The times that a text names, in seconds."""
    times = []
    for found in _TIME.findall(text):
        with suppress(ValueError):  # 12:75, a score
            times.append(parse_time(found))
    return times


def _inside(times: Sequence[float], window: Span) -> list[float]:
    return [time for time in times if window[0] <= time <= window[1]]


def _names(text: str, own: Span, other: Span) -> bool:
    """Whether a text about the window `own` names a time of `other`."""
    inside = _inside(_times(text), other)
    return len(inside) > len(_inside(inside, own))


def _looks_back(text: str, own: Span, other: Span) -> bool:
    """Whether a text about the window `own` speaks of `other`, which was seen before."""
    return _names(text, own, other) or bool(_POINTS_BACK.search(text))


def _independent(first: _Turn, second: _Turn) -> bool:
    """Whether the second call could have been made before the first one returned."""
    (one,), (two,) = first.windows, second.windows
    if one[0] < two[1] and two[0] < one[1]:
        return False
    if any(_POINTS_BACK.search(plan) or _REFINES.search(plan) for plan in second.plans):
        return False
    return not _names(first.words, one, two) and not _looks_back(second.words, two, one)


def _told(group: Sequence[_Turn], protocol: ChatProtocol) -> list[JsonMessage]:
    """A group's calls as one turn, what they returned as the next one."""
    if not group:
        return []
    first = group[0]
    if len(group) == 1 and not first.frames:
        return [first.said, *first.returned, *first.after]
    told = [
        ToolResult(window=None if _OWN_SPAN.match(turn.words) else turn.windows[0], text=turn.words) for turn in group
    ]
    said, after = first.said, group[-1].after
    if len(group) > 1:
        text = text_of(said).replace(first.calls[0], "\n".join(turn.calls[0] for turn in group), 1)
        thought, closed, rest = text.partition("</think>")
        if closed:
            named = _times(thought)
            plans = [plan for turn in group[1:] for plan in turn.plans if not _inside(named, turn.windows[0])]
            end = len(thought.rstrip())
            text = " ".join([thought[:end], *plans]) + thought[end:] + closed + rest
        said = {"role": "assistant", "content": text}
        # An answer was asked for because there had been many turns: there are fewer now.
        asked = [message.text for message in protocol.ask_for_answer(Question(video="-", text="-"))]
        after = [message for message in after if text_of(message) not in asked]
    return [said, *map(_plain, protocol.tool_messages(told)), *after]


def _plain(message: Message) -> JsonMessage:
    return {"role": message.role, "content": message.text}
