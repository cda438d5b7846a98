"""Files are seen whole or not at all."""

import os
from pathlib import Path

import pytest

from discogp_lib.paths import PACKAGE, REPO, atomic_path, cache_dir


def test_file_takes_its_name_at_the_end_of_the_block(tmp_path: Path):
    target = tmp_path / "new" / "folder" / "table.csv"
    with atomic_path(target) as temporary:
        temporary.write_text("whole")
        assert temporary.parent == target.parent
        assert not target.exists()
    assert target.read_text() == "whole"
    assert os.listdir(target.parent) == ["table.csv"]


@pytest.mark.parametrize("interruption", [ValueError, KeyboardInterrupt])
def test_interrupted_block_leaves_the_old_file_and_nothing_else(tmp_path: Path, interruption):
    target = tmp_path / "table.csv"
    target.write_text("old")
    with pytest.raises(interruption), atomic_path(target) as temporary:
        temporary.write_text("hal")
        raise interruption
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["table.csv"]


def test_new_file_has_the_permissions_of_an_ordinary_one(tmp_path: Path):
    (tmp_path / "ordinary").write_text("")
    with atomic_path(tmp_path / "atomic") as temporary:
        temporary.write_text("")
    assert (tmp_path / "atomic").stat().st_mode == (tmp_path / "ordinary").stat().st_mode


def test_cache_follows_its_variable(monkeypatch, tmp_path: Path):
    monkeypatch.setenv("DISCOGP_CACHE", str(tmp_path))
    assert cache_dir() == tmp_path
    monkeypatch.delenv("DISCOGP_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_dir() == tmp_path / ".cache" / "discogp"


def test_repository_is_the_folder_around_the_package():
    assert PACKAGE.name == "discogp_lib"
    assert (REPO / "pyproject.toml").is_file()
