"""What all training runs share, beyond what the tests of SFT and GRPO see of it."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from paravt_infer.errors import SettingsError
from paravt_training.loop.run import release_memory
from paravt_training.model.distributed import DistributedContext
from paravt_training.recipe import load_recipe
from paravt_training.sft import SftTrainer
from tests.fixtures import grpo_run
from tests.fixtures.processes import environment, run_processes
from tests.fixtures.sft_run import write_recipe


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


@pytest.mark.parametrize(("rank", "who"), [("0", "paravt_training.grpo"), ("3", "paravt_training.grpo, process 3")])
def test_a_users_mistake_is_one_line_of_each_process(rank: str, who: str) -> None:
    """A traceback of each of seven processes would bury it."""
    command = [sys.executable, "-m", "paravt_training.grpo", "--recipe", "nope"]
    done = subprocess.run(command, env=environment(RANK=rank), capture_output=True, text=True, timeout=600)
    assert done.returncode == 1 and done.stdout == ""
    (line,) = [line for line in done.stderr.splitlines() if "Warning" not in line]
    assert line.startswith(f"{who}: nope: no such recipe; name a YAML file or one of ")


def test_a_process_that_fails_is_gone_at_once_and_holds_up_no_other(tmp_path: Path) -> None:
    rollouts = {"backend": "sglang", "servers": ["http://127.0.0.1:9"]}
    file = grpo_run.write_recipe(tmp_path, grpo_run.MINI, rollouts=rollouts)
    leader, _ = run_processes(2, "-m", "paravt_training.grpo", "--recipe", str(file), fail=True)
    assert "Traceback" not in leader
    assert "\nparavt_training.grpo: http://127.0.0.1:9" in f"\n{leader}"


def test_an_out_that_cannot_be_written_is_one_line(tmp_path: Path, start: Path) -> None:
    (tmp_path / "run").write_text("a file")
    file = write_recipe(tmp_path, model={"start": str(start)}, out=str(tmp_path / "run/inside"))
    with pytest.raises(
        SettingsError,
        match=r"run/inside/run\.json: cannot write \(Not a directory\); free some space or choose another path",
    ):
        SftTrainer.from_recipe(load_recipe(file), DistributedContext())
