"""What all tests share: its fixtures are in `tests/fixtures`, by subject."""

import os

from hypothesis import settings

for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):  # before the hub's libraries are imported
    os.environ.setdefault(name, "1")

pytest_plugins = [
    "tests.fixtures.commands",
    "tests.fixtures.models",
    "tests.fixtures.servers",
    "tests.fixtures.videos",
]

# Machines that run this are shared: how long one example takes says nothing.
settings.register_profile("shared", deadline=None)
settings.load_profile("shared")
