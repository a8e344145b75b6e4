"""Atomic writing: a path gets the whole content or stays as it was."""

import stat
from pathlib import Path

import pytest

from paravt_infer.errors import SettingsError
from paravt_infer.files import atomic_path, write_text_atomic


def test_missing_folders_are_created(tmp_path: Path) -> None:
    write_text_atomic(tmp_path / "new" / "folder" / "a.txt", "text")
    assert (tmp_path / "new" / "folder" / "a.txt").read_text() == "text"


def test_an_error_leaves_the_old_content_and_no_scratch_file(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(ZeroDivisionError), atomic_path(path) as scratch:
        scratch.write_text("half")
        raise ZeroDivisionError
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_is_replaced_by_a_folder(tmp_path: Path) -> None:
    path = tmp_path / "model"
    path.mkdir()
    (path / "old").touch()
    with atomic_path(path) as scratch:
        scratch.mkdir()
        (scratch / "new").touch()
    assert [entry.name for entry in path.iterdir()] == ["new"]


def test_a_folder_is_not_replaced_by_a_file(tmp_path: Path) -> None:
    path = tmp_path / "results"
    path.mkdir()
    (path / "kept").touch()
    with pytest.raises(SettingsError, match="results: cannot write"):
        write_text_atomic(path, "text")
    assert [entry.name for entry in path.iterdir()] == ["kept"]


def test_a_link_keeps_pointing_to_the_file_it_names(tmp_path: Path) -> None:
    target, link = tmp_path / "disk" / "a.txt", tmp_path / "a.txt"
    write_text_atomic(target, "old")
    link.symlink_to(target)
    write_text_atomic(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"


def test_a_device_is_written_to_not_replaced() -> None:
    write_text_atomic(Path("/dev/null"), "text")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


def test_a_parent_that_is_a_file_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SettingsError, match=r"cannot write .*; free some space or choose another path"):
        write_text_atomic(tmp_path / "file" / "a.txt", "text")


def test_a_reader_that_closed_our_output_is_not_a_file_error(tmp_path: Path) -> None:
    with pytest.raises(BrokenPipeError), atomic_path(tmp_path / "a.txt"):
        raise BrokenPipeError
