"""Data bundled with the package: a small checkpoint for the sample world, and sample videos with questions."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

_HERE = Path(__file__).parent


@dataclass(frozen=True, kw_only=True)
class SampleVideo:
    """A sample video, and a question about it with the right answer."""

    path: str
    question: str
    options: dict[str, str]
    answer: str
    """Letter of the right option."""
    note: str = ""

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def sample_videos() -> list[SampleVideo]:
    """The sample videos, with absolute paths."""
    folder = _HERE / "samples"
    samples = json.loads((folder / "samples.json").read_text(encoding="utf-8"))
    return [SampleVideo(**{**sample, "path": str(folder / sample["path"])}) for sample in samples]


def checkpoint_path() -> Path:
    """Folder of the bundled checkpoint. It knows the sample world only; its README.md reports how well."""
    return _HERE / "checkpoint"
