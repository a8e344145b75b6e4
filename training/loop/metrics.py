"""What a run writes while it learns: metrics.jsonl, TensorBoard, and one live line."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

PLAIN_SECONDS = 10.0
"""Where no one looks at a terminal, one line each so often."""


class MetricsLog:
    """One process writes them.

    Args:
        folder: gets `metrics.jsonl`, one JSON object a step, and `tensorboard/`.
        steps: of the whole run.
        step: where it begins or goes on; what a run that was stopped wrote of later steps is removed.
    """

    def __init__(self, folder: Path, *, steps: int, step: int = 0):
        self.folder, self.steps, self.began_at = folder, steps, step
        self.file = folder / "metrics.jsonl"
        self.console = Console(stderr=True)
        self.began = self.told = time.monotonic()
        self._recent: list[tuple[float, int]] = []
        self._live: Live | None = None
        kept = [line for line in self._lines() if json.loads(line)["step"] <= step]
        scratch = self.file.with_suffix(".part")
        scratch.write_text("".join(line + "\n" for line in kept))
        scratch.replace(self.file)
        self._out = self.file.open("a")
        self._board = _board(folder / "tensorboard", step, self.console)

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self._live = Live(console=self.console, refresh_per_second=4, transient=True)
            self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._live is not None:
            self._live.stop()
        self._out.close()
        if self._board is not None:
            self._board.close()

    def write(self, step: int, values: dict[str, Any]) -> None:
        """Add one step's numbers; names with a slash are groups in TensorBoard."""
        self._out.write(json.dumps({"step": step} | values) + "\n")
        self._out.flush()
        if self._board is not None:
            for name, value in values.items():
                if isinstance(value, (int, float)):
                    self._board.add_scalar(name, value, step)

    def tell(self, step: int, *, phase: str, loss: float, tokens: int) -> None:
        """Show where the run is.

        Args:
            tokens: of this step, frames counted as what they stand for.
        """
        self.show(step, tokens, f"{phase} step {step}/{self.steps}  loss {loss:.4f}")

    def show(self, step: int, tokens: int, line: str, draw: Callable[[str], RenderableType] = Text) -> None:
        """Show `line`, with the speed and the time left behind it; on a terminal as `draw` makes it."""
        now = time.monotonic()
        self._recent = [*self._recent[-50:], (now, tokens)]
        since = self._recent[0][0]
        passed = sum(count for _, count in self._recent[1:])
        speed = passed / (now - since) if now > since else 0.0
        left = (now - self.began) / max(1, step - self.began_at) * (self.steps - step)
        line += f"  {speed:,.0f} tokens/s  {_clock(left)} left"
        if self._live is not None:
            self._live.update(draw(line))
        elif now - self.told >= PLAIN_SECONDS or step in (self.began_at + 1, self.steps):
            self.say(line)
            self.told = now

    def say(self, line: str) -> None:
        """A line that stays, above the live one."""
        self.console.print(line, highlight=False, markup=False, soft_wrap=True)

    def _lines(self) -> list[str]:
        """Whole lines only: a run that was killed may have left a part of one."""
        if not self.file.exists():
            return []
        return [line for line in self.file.read_text().split("\n")[:-1] if line]


def _board(folder: Path, step: int, console: Console) -> Any:
    """A TensorBoard writer, or None where the package is not installed."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        console.print("no TensorBoard files: the package tensorboard is not installed", style="dim")
        return None
    return SummaryWriter(str(folder), purge_step=step + 1)


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
