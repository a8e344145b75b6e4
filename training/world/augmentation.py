"""Augmentation of drawn frames: brightness, noise and JPEG artefacts, drawn once per trace."""

import io

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from paravt_training.recipe import WorldData
from paravt_training.world.scene import stable_seed


class Augmentation:
    """What recording, compression and resizing do to the images of trace or scene `number`."""

    def __init__(self, data: WorldData, number: int):
        self.draw = np.random.default_rng(stable_seed("wear", data.seed, number))
        self.light = 1 + self.draw.uniform(-data.brightness, data.brightness)
        self.noise = self.draw.uniform(0, data.noise)
        self.quality = int(self.draw.integers(50, 95)) if self.draw.random() < data.compressed else 0

    def __call__(self, image: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """# [height, width, 3] to the same"""
        noisy = image * np.float32(self.light)
        noisy += self.draw.standard_normal(image.shape, np.float32) * np.float32(self.noise)
        augmented: NDArray[np.uint8] = np.clip(noisy + 0.5, 0, 255).astype(np.uint8)
        if not self.quality:
            return augmented
        buffer = io.BytesIO()
        Image.fromarray(augmented).save(buffer, format="JPEG", quality=self.quality)
        return np.array(Image.open(buffer))
