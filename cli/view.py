"""A rollout drawn on a terminal, running or saved: the timeline, the windows, the evidence, the answer."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from paravt_infer.console import printable
from paravt_infer.rollout import Evidence, Rollout
from paravt_infer.times import format_time

COLOURS = ("cyan", "magenta", "yellow", "green", "blue")
_LABEL, _SIDE = 10, 34


def draw(rollout: Rollout, *, width: int) -> RenderableType:
    """The whole drawing of a rollout, for a terminal of `width` columns."""
    parts: list[RenderableType] = [_head(rollout), Text()]
    if rollout.video is not None:
        parts.append(_timeline(rollout, max(20, width - _LABEL - _SIDE - 4)))
    if any(call.text for call in rollout.evidence):
        parts += [Text(), _evidence(rollout)]
    parts += [Text(), _outcome(rollout)]
    return Group(*parts)


def _head(rollout: Rollout) -> RenderableType:
    lines = Text()
    lines.append(rollout.question.text, style="bold")
    for letter, option in rollout.question.options.items():
        lines.append(f"\n  {letter}. {option}", style="bold" if rollout.answer == letter else "")
    video = rollout.video
    source = f"\n{rollout.question.video}"
    if video is not None:
        source += f"  {format_time(video.duration)}, {video.width}x{video.height}, {video.fps:.3g} fps"
    return lines.append(source, style="dim")


def _timeline(rollout: Rollout, width: int) -> RenderableType:
    """The video as a bar: a row for the overview's frames and one for each requested window."""
    assert rollout.video is not None
    duration = max(rollout.video.duration, 1e-6)
    grid = Table.grid(padding=(0, 1))
    grid.add_column(width=_LABEL, no_wrap=True)
    grid.add_column(width=width, no_wrap=True)
    grid.add_column(width=_SIDE, no_wrap=True, overflow="ellipsis")

    def column(seconds: float) -> int:
        return min(width - 1, max(0, int(seconds / duration * width)))

    ticks = ["─"] * width
    for frame in rollout.overview:
        ticks[column(frame.time)] = "┴"
    state = f"{len(rollout.overview)} frames" if rollout.overview else "reading"
    grid.add_row("overview", Text("".join(ticks), style="dim"), Text(state, style="dim"))
    for number, call in enumerate(rollout.evidence):
        colour = COLOURS[number % len(COLOURS)]
        bar = Text(" " * width)
        span = call.used or call.asked
        if span and call.status != "error":
            first, last = column(span[0]), column(max(span[0], span[1] - 1e-6))
            fill = "█" if call.status == "ok" else "▒"
            bar = Text(" " * first + fill * (last - first + 1) + " " * (width - last - 1), style=colour)
        elif span and all(0 <= second < 1e9 for second in span):
            bar = Text(" " * column(min(span)) + "✗", style="red")
        grid.add_row(Text(f"call {number + 1}", style=colour), bar, _state(call))
    grid.add_row("", Text(format_time(0) + format_time(duration).rjust(width - 5), style="dim"), "")
    return grid


def _state(call: Evidence) -> Text:
    if call.status == "error":
        return Text(f"{call.fault}", style="red")
    span = f"{format_time(call.used[0])} - {format_time(call.used[1])}" if call.used else ""
    clamped = " (clamped)" if call.clamped else ""
    seconds = f", {call.seconds:.1f} s" if call.status == "ok" else ""
    return Text(f"{span}{clamped}  {call.status}{seconds}", style="" if call.status == "ok" else "italic")


def _evidence(rollout: Rollout) -> RenderableType:
    grid = Table.grid(padding=(0, 1))
    grid.add_column(width=_LABEL, no_wrap=True)
    grid.add_column(overflow="fold")
    for number, call in enumerate(rollout.evidence):
        if call.text:
            style = "red" if call.status == "error" else ""
            text = " ".join(printable(call.text).split())
            label = Text(f"call {number + 1}", style=COLOURS[number % len(COLOURS)])
            grid.add_row(label, Text(text[:600] + " ..." * (len(text) > 600), style=style))
    return grid


def _outcome(rollout: Rollout) -> RenderableType:
    if rollout.status == "running":
        return Text(current_step(rollout), style="italic dim")
    if rollout.status in ("failed", "cancelled"):
        return Panel(Text(rollout.error or "stopped"), title=rollout.status, border_style="red", title_align="left")
    usage = rollout.usage
    summary = (
        f"{len(rollout.turns)} turns, {usage.calls_ok} of {usage.calls} calls ran, {usage.prompt_tokens:,} tokens in "
        f"({usage.visual_tokens:,} visual), {usage.output_tokens:,} out, {usage.seconds:.1f} s"
    )
    if rollout.answer is None:
        response = rollout.turns[-1].response if rollout.turns else ""
        body = Text("no answer could be read").append(f"\nresponse ends: {printable(response)[-200:].strip()}", "dim")
        return Panel(body, title="no answer", subtitle=summary, border_style="yellow", title_align="left")
    option = rollout.question.options.get(rollout.answer)
    body = Text(f"{rollout.answer}. {option}" if option else printable(rollout.answer), style="bold")
    if rollout.supporting_evidence:
        spans = (f"{format_time(e.used[0])} - {format_time(e.used[1])}" for e in rollout.supporting_evidence if e.used)
        body.append("\nbased on " + ", ".join(spans), style="not bold dim")
    else:
        body.append("\nbased on the overview alone", style="not bold dim")
    return Panel(body, title="answer", subtitle=summary, border_style="green", title_align="left")


def current_step(rollout: Rollout) -> str:
    """The step that a running episode is at, in a few words."""
    if not rollout.overview:
        return "reading the video ..."
    if not rollout.turns:
        return "preparing ..."
    turn = rollout.turns[-1]
    if not turn.calls:
        return (
            f"turn {len(rollout.turns)}: the main agent {'is answering' if turn.kind == 'final' else 'is thinking'} ..."
        )
    done = sum(rollout.evidence[call].status in ("ok", "error") for call in turn.calls)
    return f"turn {len(rollout.turns)}: sub-agents are looking, {done} of {len(turn.calls)} done ..."


def listing(rollouts: Sequence[Rollout]) -> RenderableType:
    """A table of several rollouts."""
    table = Table("", "id", "status", "answer", "calls", "s", "question", box=None)
    for number, rollout in enumerate(rollouts, 1):
        question, usage = rollout.question, rollout.usage
        answer = printable(rollout.answer or rollout.error or "-")[:40]
        costs = (f"{usage.calls_ok}/{usage.calls}", f"{usage.seconds:.1f}")
        cells = (str(number), question.id or rollout.id, rollout.status, answer, *costs, printable(question.text[:60]))
        table.add_row(*map(Text, cells))  # Text: brackets are not markup
    return table


def transcript(rollout: Rollout) -> RenderableType:
    """The text of every turn, prefix included."""
    panels: list[RenderableType] = []
    for number, turn in enumerate(rollout.turns, 1):
        cached = f", {turn.cached_tokens:,} cached" if turn.cached_tokens is not None else ""
        title = f"turn {number} ({turn.kind}), {turn.prompt_tokens:,} tokens in{cached}, {turn.seconds:.1f} s"
        text = Text(printable(turn.response))
        panels += [Text(), Panel(text, title=f"{title}, {turn.finish}", title_align="left", border_style="dim")]
    return Group(*panels)
