"""What all training runs share, beyond what the tests of SFT and GRPO see of it."""

import os
import platform
from pathlib import Path

import pytest

from training.run import release_memory


def resident() -> int:
    """Bytes of memory that this process holds."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have their own ways")
def test_memory_freed_between_what_is_still_used_goes_back_to_the_system() -> None:
    blocks = [bytearray(b"x") * 65_536 for _ in range(4096)]  # 256 MiB
    held = blocks[::64]
    full = resident()
    blocks.clear()
    release_memory()
    assert full - resident() > 200 * 2**20 and len(held) == 64
