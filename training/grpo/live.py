"""The live view of reinforcement learning: a table of rewards, format, tool use and drift, and warnings."""

from collections import defaultdict, deque
from math import isnan
from statistics import fmean
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from paravt_training.loop.metrics import MetricsLog, ProgressDisplay

MAX_DRIFT = 0.02
"""A mean drift on fresh tokens above this is a warning: rollouts and learner disagree (in fp32 it is 0.005)."""
GROWTH, BASELINE_STEPS = 3.0, 5
"""So is one above GROWTH times its mean over the first BASELINE_STEPS steps, if above a tenth of `MAX_DRIFT`."""
ROWS = (
    ("reward", (("reward/total", "total"), ("reward/accuracy", "accuracy"), ("reward/format", "format"))),
    ("", (("reward/tool", "tool"), ("reward/anchor", "anchor"), ("held_out/accuracy", "held out"))),
    ("form", (("f_tau", "f_tau"), ("closure/think", "think closed"), ("closure/answer", "answer closed"))),
    ("tools", (("kappa", "kappa"), ("with_calls", "with calls"), ("tool_code", "tool_code"))),
    ("policy", (("kl", "KL"), ("gradient_norm", "gradient"), ("clipped", "clipped"))),
    ("rollouts", (("staleness/mean", "staleness"), ("drift/mean", "drift"), ("groups_flat", "flat groups"))),
)
"""Lines of the table: label, and metrics with their names."""
RECENT_STEPS = 10
"""A metric is shown with its mean over up to this many previous steps."""


class GrpoMonitor:
    """Logs the steps of a GRPO run and shows them: a live table on a terminal, elsewhere a line now and then."""

    def __init__(self, log: MetricsLog, display: ProgressDisplay):
        self.log, self.display = log, display
        self._recent: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=RECENT_STEPS + 1))
        self._first_drifts: list[float] = []
        self._reported_drift = 0.0

    def log_step(self, step: int, values: dict[str, Any]) -> None:
        """Log one step's metrics and show them."""
        self.log.write(step, values)
        for name, value in values.items():
            if isinstance(value, (int, float)):
                self._recent[name].append(float(value))
        if "loss" not in values:  # the measure before the first step
            self.display.say(f"held out before the first step: accuracy {values['held_out/accuracy']:.3f}")
            return
        line = f"step {step}/{self.display.steps}  reward {values['reward/total']:.3f}  f_tau {values['f_tau']:.3f}"
        line += f"  kappa {values['kappa']:.2f}  KL {values.get('kl', 0.0):.4f}"
        self.display.update(step, int(values["tokens"]), line, self.table)
        self._warn(step, values)

    def table(self, line: str) -> RenderableType:
        """`line`, and below it each metric with its mean over previous steps."""
        table = Table.grid(padding=(0, 2))
        for _ in range(7):
            table.add_column()
        for label, cells in ROWS:
            row: list[RenderableType] = [Text(label, style="bold")]
            for name, title in cells:
                *previous, latest = self._recent[name] or [float("nan")]
                cell = Text("-" if isnan(latest) else f"{latest:.3f}")
                mean = f" ({fmean(previous):.3f})" if previous else ""
                row += [Text(title, style="dim"), cell.append(mean, style="dim")]
            table.add_row(*row)
        return Group(Text(line), table, Text(f"in brackets: mean of up to {RECENT_STEPS} previous steps", style="dim"))

    def _warn(self, step: int, values: dict[str, Any]) -> None:
        """Print what must not go unnoticed."""
        say = self.display.say
        if values["drift/tokens"]:
            self._warn_of_drift(step, values["drift/mean"], values["drift/tokens"])
        if values["rollouts_failed"]:
            say(f"step {step}: {values['rollouts_failed']} rollouts failed and were dropped ({values['failure']})")
        if values["idle"]:
            flat, groups = values["groups_flat"], values["groups"]
            repeated = f", {values['idle']} steps in a row" if values["idle"] > 1 else ""
            say(f"warning: step {step}: nothing to learn from ({flat} of {groups} groups flat){repeated}")
        if "held_out/accuracy" in values:
            say(f"held out at step {step}: accuracy {values['held_out/accuracy']:.3f}")

    def _warn_of_drift(self, step: int, drift: float, tokens: int) -> None:
        """Warn of a drift that is too large or has grown; again when it has doubled since the last warning."""
        limit = MAX_DRIFT
        if len(self._first_drifts) < BASELINE_STEPS:
            self._first_drifts.append(drift)
        else:
            limit = min(MAX_DRIFT, max(MAX_DRIFT / 10, GROWTH * fmean(self._first_drifts)))
        if drift > max(limit, 2 * self._reported_drift):
            self._reported_drift = drift
            self.display.say(
                f"warning: step {step}: log-probabilities of learner and rollouts differ by {drift:.4f} on average "
                f"over {tokens} fresh tokens; above {limit:.2g} the updates are not on policy"
            )
