"""`MetricsLog` writes a run's metrics to metrics.jsonl and TensorBoard; `ProgressDisplay` shows them on stderr."""

import json
import os
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Self

from rich.console import RenderableType
from rich.live import Live
from rich.text import Text

from paravt_infer.console import say, stderr
from paravt_infer.files import write_text_atomic

PLAIN_SECONDS = 10.0
"""Interval between lines where stderr is not a terminal."""


class MetricsLog(AbstractContextManager["MetricsLog"]):
    """Writes `metrics.jsonl`, one JSON object per step, and `tensorboard/` in the folder of a run.

    Args:
        step: completed steps when the run starts or resumes; records of later steps are removed.
    """

    def __init__(self, folder: Path, *, step: int = 0):
        path = folder / "metrics.jsonl"
        text = path.read_text() if path.exists() else ""
        lines = [line for line in text.split("\n")[:-1] if line]  # a run that was killed may have left part of a line
        write_text_atomic(path, "".join(f"{line}\n" for line in lines if json.loads(line)["step"] <= step))
        self._file = path.open("a")
        self._tensorboard = _tensorboard_writer(folder / "tensorboard", step)

    def __exit__(self, *exc: object) -> None:
        self._file.close()
        if self._tensorboard is not None:
            self._tensorboard.close()

    def write(self, step: int, values: dict[str, Any]) -> None:
        """Add one step's metrics; names with a slash are grouped in TensorBoard."""
        self._file.write(json.dumps({"step": step} | values) + "\n")
        self._file.flush()
        if self._tensorboard is not None:
            for name, value in values.items():
                if isinstance(value, (int, float)):
                    self._tensorboard.add_scalar(name, value, step)


class ProgressDisplay:
    """Shows a run's progress on stderr: live on a terminal, otherwise a line every `PLAIN_SECONDS`.

    Args:
        steps: of the whole run.
        step: completed steps when the run starts or resumes.
    """

    def __init__(self, *, steps: int, step: int = 0):
        self.steps, self.first_step = steps, step
        self.console = stderr()
        self.started = self.last_line = time.monotonic()
        self._recent: deque[tuple[float, int]] = deque(maxlen=51)
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self._live = Live(console=self.console, refresh_per_second=4, transient=True)
            self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._live is not None:
            self._live.stop()

    def update(self, step: int, tokens: int, line: str, render: Callable[[str], RenderableType] = Text) -> None:
        """Show `line` with the speed and the remaining time.

        Args:
            tokens: of this step, a frame counted as its visual tokens.
            render: what a terminal shows of the line.
        """
        now = time.monotonic()
        self._recent.append((now, tokens))
        since = self._recent[0][0]
        speed = (sum(count for _, count in self._recent) - self._recent[0][1]) / (now - since) if now > since else 0.0
        remaining = (now - self.started) / max(1, step - self.first_step) * (self.steps - step)
        line += f"  {speed:,.0f} tokens/s  {_clock(remaining)} left"
        if self._live is not None:
            self._live.update(render(line))
        elif now - self.last_line >= PLAIN_SECONDS or step in (self.first_step + 1, self.steps):
            self.say(line)
            self.last_line = now

    def say(self, line: str) -> None:
        """Print a line that stays, above the live display."""
        say(line, console=self.console)


def _tensorboard_writer(folder: Path, step: int) -> Any:
    """A TensorBoard writer, or None if the package is not installed."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        say("no TensorBoard files: the package tensorboard is not installed", style="dim")
        return None
    return SummaryWriter(str(folder), purge_step=step + 1)


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
