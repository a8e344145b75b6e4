"""An A/B comparison in words: its figures' labels, changes between the arms, and sentences."""

from typing import NamedTuple

from lmms_tasks.reports.statistics import RIGHT, ComparisonStatistics


class Figure(NamedTuple):
    """A line of an arm's figures, and how it is printed."""

    label: str
    field: str
    """A field of `ArmStatistics`."""
    template: str
    relative: bool
    """Whether the last column shows the ratio of the arms; else their difference."""


FIGURES = (
    Figure("score, %", "score", "{:.1f}", False),
    Figure("right", "right", "{:,}", False),
    Figure("no answer", "no_answer", "{:,}", False),
    Figure("failed", "failed", "{:,}", False),
    Figure("seconds, p50", "seconds_p50", "{:.2f}", True),
    Figure("seconds, p95", "seconds_p95", "{:.2f}", True),
    Figure("visual tokens in the main context", "main_visual_tokens", "{:,.0f}", True),
    Figure("main agent's tokens in, measured", "main_prompt_tokens", "{:,.0f}", True),
    Figure("predicted, T_seq", "predicted_sequential", "{:,.0f}", True),
    Figure("predicted, T_par", "predicted_parallel", "{:,.0f}", True),
    Figure("output tokens", "output_tokens", "{:,.0f}", True),
    Figure("calls", "calls", "{:.2f}", True),
)


def format_figure(part: ComparisonStatistics, figure: Figure) -> tuple[str, str, str]:
    """The first arm's value, the second's, and the change; "-" for what does not exist."""
    a, b = getattr(part.a, figure.field), getattr(part.b, figure.field)
    first, second = ("-" if value is None else figure.template.format(value) for value in (a, b))
    return first, second, format_change(a, b, relative=figure.relative)


def format_change(a: float | None, b: float | None, *, relative: bool) -> str:
    """The second arm's value minus the first's, or divided by it.

    >>> format_change(10.0, 15.0, relative=True), format_change(10, 15, relative=False)
    ('x 1.50', '+5')
    >>> format_change(0.0, 1.0, relative=True)
    '-'
    """
    if a is None or b is None or (relative and a == 0):
        return "-"
    if relative:
        return f"x {b / a:.2f}"
    return f"{b - a:+d}" if isinstance(a, int) and isinstance(b, int) else f"{b - a:+.1f}"


def short_arm_names(names: tuple[str, str]) -> tuple[str, str]:
    """The arms' names as values without the settings' names, where these still differ.

    >>> short_arm_names(("dispatch=parallel,evidence=text", "dispatch=sequential,evidence=frames"))
    ('parallel, text', 'sequential, frames')
    """
    first, second = (", ".join(part.rpartition("=")[2].strip() for part in name.split(",")) for name in names)
    return (first, second) if first and second and first != second else names


def describe_comparison(part: ComparisonStatistics, names: tuple[str, str]) -> list[str]:
    """What the numbers show, in sentences; also what they do not."""
    lines = []
    if part.difference is None:
        lines.append("No question was answered by both arms: there is nothing to compare.")
    else:
        if part.interval is None:
            certainty = "a single pair has no interval"
        elif part.interval[0] == part.interval[1]:
            certainty = "every pair has the same difference, so the 95% interval is that point"
        else:
            certainty = "95% interval {:+.1f} to {:+.1f}, paired bootstrap".format(*part.interval)
        lines.append(f"Difference, second minus first: {part.difference:+.1f} points ({certainty}).")
        lines.append(
            f"Right in one arm only: {part.only_a_right:,} ({names[0]}), {part.only_b_right:,} ({names[1]}); "
            f"exact McNemar p = {part.p:.3g}. A grounding answer counts as right from an IoU of {RIGHT}."
        )
    if part.seconds_ratio is not None:
        lines.append(f"Seconds, second / first, question by question: x {part.seconds_ratio:.2f} in the median.")
    if part.left_out:
        lines.append(
            f"Left out because an episode failed: {part.left_out:,} questions "
            f"({part.a.failed:,} episodes of the first arm, {part.b.failed:,} of the second)."
        )
    return lines
