"""What ships inside the package: a small checkpoint of the sample world, and sample videos with their questions."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

_HERE = Path(__file__).parent


@dataclass(frozen=True, kw_only=True)
class SampleVideo:
    """A video that ships, and a question about it with the right answer."""

    path: str
    question: str
    options: dict[str, str]
    answer: str
    """The right option's letter."""
    note: str = ""

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def sample_videos() -> list[SampleVideo]:
    """The sample videos, paths absolute."""
    folder = _HERE / "samples"
    listed = json.loads((folder / "samples.json").read_text(encoding="utf-8"))
    return [SampleVideo(**{**one, "path": str(folder / one["path"])}) for one in listed]


def checkpoint_path() -> Path:
    """The folder of the bundled checkpoint: it understands the sample world only; its README.md says how well."""
    return _HERE / "checkpoint"
