"""Scenes: what a synthetic video shows, drawn directly at any time. The same seed gives the same pixels.

A scene is a plain, slowly moving background and events: one coloured shape each, on screen for 2 to 6 seconds.
Events begin and end on whole seconds, so an event of L seconds is in exactly L frames at 1 fps.
"""

import hashlib
import math
import random
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

Motion = Literal["still", "right", "left", "down", "up"]
MOTIONS: tuple[Motion, ...] = ("still", "right", "left", "down", "up")
SHAPES = ("circle", "square", "triangle", "star")
COLOURS: dict[str, tuple[int, int, int]] = {
    "red": (222, 38, 38),
    "green": (32, 176, 62),
    "blue": (40, 82, 236),
    "yellow": (250, 218, 40),
    "purple": (156, 48, 196),
    "white": (248, 248, 248),
}
"""RGB of the shapes' colours."""
BACKGROUNDS: dict[str, tuple[int, int, int]] = {
    "black": (22, 22, 26),
    "grey": (112, 114, 118),
    "brown": (98, 66, 38),
    "pink": (222, 160, 182),
}
"""RGB of the backgrounds: every colour of `COLOURS` stands out from them, and none is among them."""

MARGIN = 5
"""Seconds without an event at the start and end of a scene."""
GAP = 5
"""Minimum seconds between two events. With `MARGIN`, a window that reaches 5 s beyond an event shows no other."""
_LENGTHS = (2, 6)
_EDGE = 0.03
_OVERSAMPLING = 4
"""Masks are drawn this many times larger and averaged, for smooth edges."""


def stable_seed(*names: object) -> int:
    """A seed from any names, the same in every process and Python version.

    >>> stable_seed("train", 0, 7)
    271358879987936
    """
    return int.from_bytes(hashlib.sha256("/".join(map(str, names)).encode()).digest()[:6], "big")


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    """One shape on screen from `start` (included) to `end` (excluded)."""

    start: float
    """Seconds."""
    end: float
    """Seconds."""
    shape: str
    """One of `SHAPES`."""
    colour: str
    """One of `COLOURS`."""
    motion: Motion = "still"
    """Its direction, from one side of the image to the other over the whole event."""
    x: float = 0.5
    """Its centre, as a fraction of the width; ignored where it moves right or left."""
    y: float = 0.5
    """Its centre, as a fraction of the height; ignored where it moves down or up."""
    radius: float = 0.38
    """From its centre to its farthest point, as a fraction of the shorter side."""

    @property
    def name(self) -> str:
        """Such as `red circle`."""
        return f"{self.colour} {self.shape}"

    def shown_at(self, time: float) -> bool:
        return self.start <= time < self.end

    def centre(self, time: float) -> tuple[float, float]:
        """Its centre at `time` seconds, as fractions of width and height."""
        edge = self.radius + _EDGE
        moved = edge + (1 - 2 * edge) * (time - self.start) / (self.end - self.start)
        x = {"right": moved, "left": 1 - moved}.get(self.motion, self.x)
        return x, {"down": moved, "up": 1 - moved}.get(self.motion, self.y)


@dataclass(frozen=True, kw_only=True, slots=True)
class Scene:
    """What one video shows.

    >>> scene = Scene.from_seed(7)
    >>> scene.render(12.0, (64, 64)).shape
    (64, 64, 3)
    """

    seed: int
    """What it was generated from; decides how the background moves."""
    duration: int
    """Seconds."""
    background: str
    """One of `BACKGROUNDS`."""
    events: tuple[Event, ...]
    """In order of time; no two show the same shape in the same colour."""

    @classmethod
    def from_seed(cls, seed: int) -> "Scene":
        """The scene of a seed: 30 to 600 s long (one in ten under 90 s), with 2 to 16 events."""
        draw = random.Random(stable_seed("scene", seed))
        duration = draw.randint(30, 89) if draw.random() < 0.1 else draw.randint(90, 600)
        count = min(16, max(2, round(duration / draw.uniform(10, 30))))
        lengths = [draw.randint(*_LENGTHS) for _ in range(count)]
        while (free := duration - 2 * MARGIN - sum(lengths) - GAP * (len(lengths) - 1)) < 0:
            lengths.pop()
        kinds = draw.sample([(shape, colour) for shape in SHAPES for colour in COLOURS], len(lengths))
        waits = sorted(draw.randint(0, free) for _ in lengths)
        events, before = [], MARGIN
        for length, wait, (shape, colour) in zip(lengths, waits, kinds, strict=True):
            radius = draw.uniform(0.34, 0.42)
            edge = radius + _EDGE
            events.append(
                Event(
                    start=float(before + wait),
                    end=float(before + wait + length),
                    shape=shape,
                    colour=colour,
                    motion=draw.choice(MOTIONS),
                    x=draw.uniform(edge, 1 - edge),
                    y=draw.uniform(edge, 1 - edge),
                    radius=radius,
                )
            )
            before += length + GAP
        return cls(seed=seed, duration=duration, background=draw.choice(list(BACKGROUNDS)), events=tuple(events))

    def event_at(self, time: float) -> Event | None:
        """What is on screen at `time` seconds, if anything."""
        return next((event for event in self.events if event.shown_at(time)), None)

    def render(self, time: float, size: tuple[int, int]) -> NDArray[np.uint8]:
        """The image at `time` seconds, `size` (width, height) pixels.  # [height, width, 3], RGB"""
        image = self._render_background(time, size)
        event = self.event_at(time)
        if event is not None:
            mask, left, top = _mask(event, time, size)
            region = image[top : top + mask.shape[0], left : left + mask.shape[1]]
            region += mask * (np.array(COLOURS[event.colour], np.float32) - region)
        return np.rint(image).astype(np.uint8)

    def _render_background(self, time: float, size: tuple[int, int]) -> NDArray[np.float32]:
        """The background's colour, slightly lighter and darker in one wide, drifting wave.  # [height, width, 3]"""
        draw = random.Random(stable_seed("ground", self.seed))
        angle, start, period = draw.uniform(0, math.tau), draw.uniform(0, math.tau), draw.uniform(30, 60)
        x, y = _pixel_centres(size)
        phase = 4 * (math.cos(angle) * x + math.sin(angle) * y) + (start + math.tau * time / period)
        wave = np.sin(phase, dtype=np.float32) * np.float32(10)
        return np.array(BACKGROUNDS[self.background], np.float32) + wave[..., None]


@lru_cache(maxsize=8)
def _pixel_centres(size: tuple[int, int]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Pixel centres as fractions of the width and of the height.  # [1, width], [height, 1]"""
    width, height = size
    x = ((np.arange(width) + 0.5) / width).astype(np.float32)
    y = ((np.arange(height) + 0.5) / height).astype(np.float32)
    return x[None, :], y[:, None]


def _mask(event: Event, time: float, size: tuple[int, int]) -> tuple[NDArray[np.float32], int, int]:
    """How much of each pixel the shape covers, 0 to 1, and the left and top of that region.  # [rows, columns, 1]"""
    x, y = event.centre(time)
    x, y, radius = x * size[0], y * size[1], event.radius * min(size)
    left, top = max(0, int(x - radius)), max(0, int(y - radius))
    columns, rows = min(size[0], int(x + radius) + 1) - left, min(size[1], int(y + radius) + 1) - top
    image = Image.new("L", (columns * _OVERSAMPLING, rows * _OVERSAMPLING))
    pen = ImageDraw.Draw(image)
    x, y, radius = (x - left) * _OVERSAMPLING, (y - top) * _OVERSAMPLING, radius * _OVERSAMPLING
    if event.shape in ("circle", "square"):
        half = radius * 0.85
        draw_shape = pen.ellipse if event.shape == "circle" else pen.rectangle
        draw_shape((x - half, y - half, x + half, y + half), fill=255)
    elif event.shape == "triangle":
        pen.polygon(_corners(x, y, [radius] * 3), fill=255)
    else:
        pen.polygon(_corners(x, y, [radius, radius * 0.45] * 5), fill=255)
    return np.asarray(image.reduce(_OVERSAMPLING), np.float32)[..., None] / np.float32(255), left, top


def _corners(x: float, y: float, radii: list[float]) -> list[tuple[float, float]]:
    """Corners around (x, y) at these distances, clockwise from the top."""
    angles = (math.tau * number / len(radii) - math.tau / 4 for number in range(len(radii)))
    return [(x + r * math.cos(angle), y + r * math.sin(angle)) for r, angle in zip(radii, angles, strict=True)]
