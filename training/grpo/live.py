"""What a person watching reinforcement learning sees: rewards, form, tool use, drift and speed, and where they go."""

from collections import deque
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from paravt_training.loop.metrics import MetricsLog

DRIFT = 0.02
"""A mean drift on fresh tokens above this is told: what generates and what learns disagree (fp32 has 0.005)."""
GROWTH, FIRST = 3.0, 5
"""So is one above so many times its mean over the first so many steps, where that is more than a tenth of `DRIFT`."""
ROWS = (
    ("reward", (("reward/total", "total"), ("reward/accuracy", "accuracy"), ("reward/format", "format"))),
    ("", (("reward/tool", "tool"), ("reward/anchor", "anchor"), ("held_out/accuracy", "held out"))),
    ("form", (("f_tau", "f_tau"), ("closure/think", "think closed"), ("closure/answer", "answer closed"))),
    ("tools", (("kappa", "kappa"), ("with_calls", "with calls"), ("tool_code", "tool_code"))),
    ("policy", (("kl", "KL"), ("gradient_norm", "gradient"), ("clipped", "clipped"))),
    ("rollouts", (("staleness/mean", "staleness"), ("drift/mean", "drift"), ("groups_flat", "flat groups"))),
)
"""Label, and the metrics of one line with their names."""
RECENT = 10
"""A figure is shown with its mean over so many steps before."""


class GrpoMetrics(MetricsLog):
    """MetricsLog of a GRPO run, with a live table on a terminal and a line now and then elsewhere."""

    def __init__(self, folder: Path, *, steps: int, step: int = 0):
        super().__init__(folder, steps=steps, step=step)
        self._past: dict[str, deque[float]] = {}
        self._first_drifts: list[float] = []
        self._told_drift = 0.0

    def step(self, step: int, values: dict[str, Any]) -> None:
        """Write one step's metrics and show them."""
        self.write(step, values)
        for name, value in values.items():
            if isinstance(value, (int, float)):
                self._past.setdefault(name, deque(maxlen=RECENT + 1)).append(float(value))
        if "loss" not in values:  # the measure before the first step
            self.say(f"held out before the first step: accuracy {values['held_out/accuracy']:.3f}")
            return
        line = f"step {step}/{self.steps}  reward {values['reward/total']:.3f}  f_tau {values['f_tau']:.3f}"
        line += f"  kappa {values['kappa']:.2f}  KL {values.get('kl', 0.0):.4f}"
        self.show(step, int(values["tokens"]), line, self._table)
        self._warn(step, values)

    def _table(self, line: str) -> RenderableType:
        table = Table.grid(padding=(0, 2))
        for _ in range(7):
            table.add_column()
        for label, cells in ROWS:
            row: list[RenderableType] = [Text(label, style="bold")]
            for name, shown in cells:
                past = self._past.get(name)
                now = f"{past[-1]:.3f}" if past else "-"
                before = [*past][:-1] if past else []
                mean = f" ({sum(before) / len(before):.3f})" if before else ""
                row += [Text(shown, style="dim"), Text(now).append(mean, style="dim")]
            table.add_row(*row)
        foot = Text(f"in brackets: mean of up to {RECENT} steps before", style="dim")
        return Group(Text(line), table, foot)

    def _warn(self, step: int, values: dict[str, Any]) -> None:
        """What must not pass unseen."""
        if values["drift/tokens"]:
            self._warn_of_drift(step, values["drift/mean"], values["drift/tokens"])
        if values["rollouts_failed"]:
            self.say(f"step {step}: {values['rollouts_failed']} rollouts failed and were dropped ({values['failure']})")
        if values["idle"]:
            flat, groups = values["groups_flat"], values["groups"]
            again = f", {values['idle']} steps in a row" if values["idle"] > 1 else ""
            self.say(f"warning: step {step}: nothing to learn from ({flat} of {groups} groups flat){again}")
        if "held_out/accuracy" in values:
            self.say(f"held out at step {step}: accuracy {values['held_out/accuracy']:.3f}")

    def _warn_of_drift(self, step: int, drift: float, tokens: int) -> None:
        """Too much of it or far more than at first; again when it has doubled since it was told."""
        level = DRIFT
        if len(self._first_drifts) < FIRST:
            self._first_drifts.append(drift)
        else:
            level = min(DRIFT, max(DRIFT / 10, GROWTH * fmean(self._first_drifts)))
        if drift > max(level, 2 * self._told_drift):
            self._told_drift = drift
            self.say(
                f"warning: step {step}: log-probabilities of learner and rollouts differ by {drift:.4f} on average "
                f"over {tokens} fresh tokens; above {level:.2g} the updates are not on policy"
            )
