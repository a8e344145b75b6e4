"""Where the videos that rows name are: sentinel paths of the public files, and others, to paths on this machine."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

SENTINELS = ("longvt_source/", "museg/charades/", "museg/et_instruct_164k/", "selfqa/")
"""What the public files' video paths begin with, in place of a folder of their makers'."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Folders:
    """Where videos are.

    >>> Folders(root=Path("data"), by_prefix={"selfqa/": Path("qa")}).find("selfqa/a.mp4", Path("x.parquet"))
    PosixPath('qa/a.mp4')
    """

    root: Path | None = None
    """What relative paths start from; by default the folder of the Parquet file."""
    by_prefix: Mapping[str, Path] = field(default_factory=dict)
    """Folders of what stands after a prefix, where a prefix has a folder of its own."""

    def find(self, video: str, file: Path) -> Path:
        """Where a video that `file` names is, if it is there."""
        for prefix in sorted(self.by_prefix, key=len, reverse=True):
            if video.startswith(prefix):
                return self.by_prefix[prefix] / video[len(prefix) :]
        return (self.root or file.parent) / video


def prefix_of(video: str) -> str:
    """What a video is counted under: its sentinel, else its first folder.

    >>> prefix_of("museg/charades/3MSZA.mp4"), prefix_of("videos/a/b.mp4"), prefix_of("/data/b.mp4")
    ('museg/charades/', 'videos/', '/data/')
    """
    for sentinel in SENTINELS:
        if video.startswith(sentinel):
            return sentinel
    first = re.match(r"/?[^/]+/", video)
    return first.group() if first else "./"
