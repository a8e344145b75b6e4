"""What a person watching reinforcement learning sees: rewards, form, tool use, drift and speed, and where they go."""

from collections import deque
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from training.metrics import Metrics

DRIFT = 0.02
"""A mean drift on fresh tokens above this is told: what generates and what learns disagree (fp32 has 0.005)."""
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


class GrpoMetrics(Metrics):
    """Metrics of a GRPO run, with a live table on a terminal and a line now and then elsewhere."""

    def __init__(self, folder: Path, *, steps: int, step: int = 0):
        super().__init__(folder, steps=steps, step=step)
        self._past: dict[str, deque[float]] = {}
        self._alarmed = False

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
        if values["drift/mean"] > DRIFT and values["drift/tokens"] and not self._alarmed:
            self._alarmed = True
            self.say(
                f"warning: step {step}: log-probabilities of learner and rollouts differ by {values['drift/mean']:.4f} "
                f"on average over {values['drift/tokens']} fresh tokens; above {DRIFT} the updates are not on policy"
            )
        if values["rollouts_failed"]:
            self.say(f"step {step}: {values['rollouts_failed']} rollouts failed and were dropped ({values['failure']})")
        if values["idle"]:
            flat, groups = values["groups_flat"], values["groups"]
            again = f", {values['idle']} steps in a row" if values["idle"] > 1 else ""
            self.say(f"warning: step {step}: nothing to learn from ({flat} of {groups} groups flat){again}")
        if "held_out/accuracy" in values:
            self.say(f"held out at step {step}: accuracy {values['held_out/accuracy']:.3f}")
