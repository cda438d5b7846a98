"""Where data come from, and what is said when they cannot be had or are not the right ones."""

import hashlib
import io
import json
import sys
import urllib.error
from types import ModuleType

import pytest

from discogp_lib.errors import TaskError
from discogp_lib.tasks import sources

PAIRS = {"P36": [["Aland", "Bville"], ["Cland", "Dville"]]}
GOOD = [("Anna sees herself.", "Anna sees himself.")]


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch, tmp_path):
    """No real data and an empty cache."""
    monkeypatch.delenv("DISCOGP_DATA", raising=False)
    monkeypatch.setenv("DISCOGP_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def upstream(monkeypatch):
    """Pin two made-up pairs, and serve what a test puts into the returned dictionary."""
    monkeypatch.setitem(sources.PAIRS_SHA256, "P36", sources.canonical_sha256(PAIRS["P36"]))
    files: dict[str, bytes] = {}
    asked: list[str] = []

    def urlopen(address, timeout):
        name = address.removeprefix(sources.PARAREL_URL)
        asked.append(name)
        if name not in files:
            raise urllib.error.URLError("no network")
        return io.BytesIO(files[name])

    monkeypatch.setattr(sources.urllib.request, "urlopen", urlopen)
    files_and_log = ModuleType("upstream")
    files_and_log.files, files_and_log.asked = files, asked
    return files_and_log


def test_pairs_are_downloaded_once_then_read_from_the_cache(upstream, tmp_path):
    upstream.files[sources.PAIRS_PATHS[0]] = json.dumps(PAIRS).encode()
    expected = ([("Aland", "Bville"), ("Cland", "Dville")], "upstream files")
    assert sources.pararel_pairs("P36") == expected
    upstream.files.clear()
    assert sources.pararel_pairs("P36") == expected
    assert len(upstream.asked) == 1
    assert [path.name for path in (tmp_path / "cache" / "pararel").iterdir()] == [
        "query_pairs.json"
    ]


def test_the_second_upstream_place_is_tried(upstream):
    upstream.files[sources.PAIRS_PATHS[1]] = json.dumps(PAIRS).encode()
    assert len(sources.pararel_pairs("P36")[0]) == 2


def test_a_damaged_cache_is_downloaded_again(upstream, tmp_path):
    upstream.files[sources.PAIRS_PATHS[0]] = json.dumps(PAIRS).encode()
    path = tmp_path / "cache" / "pararel" / "query_pairs.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(b'{"P36": [["Aland"')
    assert len(sources.pararel_pairs("P36")[0]) == 2


@pytest.mark.parametrize("content", [b'{"P36": [["Aland", "Cville"]]}', b"<html>", b"[]", b"{}"])
def test_changed_upstream_contents_are_refused_and_not_kept(upstream, tmp_path, content):
    upstream.files[sources.PAIRS_PATHS[0]] = content
    with pytest.raises(TaskError, match="another SHA-256"):
        sources.pararel_pairs("P36")
    assert not (tmp_path / "cache" / "pararel" / "query_pairs.json").exists()


def test_without_network_or_folder_both_ways_are_named(upstream):
    with pytest.raises(
        TaskError, match=r"PARAREL data .*connect to the network, or set DISCOGP_DATA"
    ):
        sources.pararel_pairs("P36")


def test_patterns_are_checked_by_their_bytes(upstream, monkeypatch):
    content = b'{"pattern": "[X] lies near [Y]."}\n{"pattern": "[Y] lies near [X]."}\n'
    upstream.files["PARAREL/raw_data/patterns/P36.jsonl"] = content
    with pytest.raises(TaskError, match="another SHA-256"):
        sources.pararel_pattern("P36")
    monkeypatch.setitem(sources.PATTERNS_SHA256, "P36", hashlib.sha256(content).hexdigest())
    assert sources.pararel_pattern("P36") == "[X] lies near [Y]."


def hub(monkeypatch, rows):
    """A stand-in for the `datasets` package; an exception in place of rows is raised."""

    def load_dataset(repository, paradigm, *, revision, split):
        assert (repository, split) == ("nyu-mll/blimp", "train")
        assert len(revision) == 40
        if isinstance(rows, Exception):
            raise rows
        return rows

    package = ModuleType("datasets")
    package.load_dataset = load_dataset
    monkeypatch.setitem(sys.modules, "datasets", package)


def test_blimp_comes_from_the_hub_and_is_checked(monkeypatch):
    name = "anaphor_gender_agreement"
    hub(monkeypatch, [{"sentence_good": good, "sentence_bad": bad} for good, bad in GOOD])
    with pytest.raises(TaskError, match="another SHA-256"):
        sources.blimp_pairs(name)
    monkeypatch.setitem(sources.BLIMP_SHA256, name, sources.canonical_sha256(GOOD))
    assert sources.blimp_pairs(name) == (GOOD, "Hugging Face hub")


def test_a_hub_out_of_reach_names_both_ways(monkeypatch):
    hub(monkeypatch, ConnectionError("no network"))
    with pytest.raises(
        TaskError, match=r"BLiMP data .*connect to the network, or set DISCOGP_DATA"
    ):
        sources.blimp_pairs("anaphor_gender_agreement")


def test_a_folder_comes_first_and_is_checked_too(monkeypatch, tmp_path):
    name = "anaphor_gender_agreement"
    hub(monkeypatch, AssertionError("not asked"))
    monkeypatch.setenv("DISCOGP_DATA", str(tmp_path))
    (tmp_path / "blimp").mkdir()
    file = tmp_path / "blimp" / f"{name}.jsonl"
    file.write_text(json.dumps({"sentence_good": GOOD[0][0], "sentence_bad": GOOD[0][1]}))
    with pytest.raises(TaskError, match="another SHA-256"):
        sources.blimp_pairs(name)
    monkeypatch.setitem(sources.BLIMP_SHA256, name, sources.canonical_sha256(GOOD))
    assert sources.blimp_pairs(name) == (GOOD, "DISCOGP_DATA")
    file.write_text("{")
    with pytest.raises(TaskError, match="another SHA-256"):
        sources.blimp_pairs(name)


@pytest.mark.parametrize("content", ['{"NAMES": ["Anna"]}', "{", '{"x": 1}', "[]"])
def test_other_names_than_those_of_ioi_are_refused(monkeypatch, tmp_path, content):
    monkeypatch.setenv("DISCOGP_DATA", str(tmp_path))
    (tmp_path / "ioi").mkdir()
    (tmp_path / "ioi" / "ioi_templates.json").write_text(content)
    with pytest.raises(TaskError, match="another SHA-256"):
        sources.ioi_names()


def test_a_folder_that_is_none_is_said(monkeypatch, tmp_path):
    monkeypatch.setenv("DISCOGP_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(TaskError, match="which is not a folder"):
        sources.ioi_names()
