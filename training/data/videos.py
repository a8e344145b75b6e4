"""From the video paths in rows, with the public files' placeholder prefixes, to paths on this machine."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

PLACEHOLDERS = ("longvt_source/", "museg/charades/", "museg/et_instruct_164k/", "selfqa/")
"""Prefixes of the public files' video paths, in place of their authors' folders."""


@dataclass(frozen=True, kw_only=True, slots=True)
class VideoFolders:
    """Where videos are.

    >>> VideoFolders(root=Path("data"), by_prefix={"selfqa/": Path("qa")}).resolve("selfqa/a.mp4", Path("x.parquet"))
    PosixPath('qa/a.mp4')
    """

    root: Path | None = None
    """The base of relative paths; by default the folder of the Parquet file."""
    by_prefix: Mapping[str, Path] = field(default_factory=dict)
    """Prefix to the folder that replaces it; the longest prefix wins."""

    def resolve(self, video: str, file: Path) -> Path:
        """The path of a video that a row of `file` names, whether it exists or not."""
        prefix = max(filter(video.startswith, self.by_prefix), key=len, default=None)
        if prefix is None:
            return (self.root or file.parent) / video
        return self.by_prefix[prefix] / video.removeprefix(prefix)


def video_prefix(video: str) -> str:
    """What a video is counted under: its placeholder, else its first folder.

    >>> video_prefix("museg/charades/3MSZA.mp4"), video_prefix("videos/a/b.mp4"), video_prefix("/data/b.mp4")
    ('museg/charades/', 'videos/', '/data/')
    """
    placeholder = next(filter(video.startswith, PLACEHOLDERS), None)
    first = re.match(r"/?[^/]+/", video)
    return placeholder or (first.group() if first else "./")
