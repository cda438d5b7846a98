"""Where real data come from: `DISCOGP_DATA`, else the hub or pinned upstream files.

Whatever the way, the contents are checked against their SHA-256, so a task is the same
wherever it is loaded. Nothing here is asked for by the mini model, whose tasks are generated.
"""

import hashlib
import json
import os
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from discogp_lib.errors import TaskError
from discogp_lib.paths import atomic_path, cache_dir

BLIMP_REPOSITORY = "nyu-mll/blimp"
BLIMP_REVISION = "877fba0801ffb7cbd8c39c1ff314a46f053f6036"
BLIMP_SHA256 = {
    "anaphor_gender_agreement": "4b5e8d4a1d34ad2e793cdb118b86a48d786647405b52d4cae4da66df5acf5f95",
    "anaphor_number_agreement": "b300939f549e872ac4f723dd1a1b1be2ae7a4cb81168aa12362e000abed8c14a",
    "determiner_noun_agreement_1": (
        "0fb88d49da9eabe1249a4240ea8e6031dc0ca105892e49c12efe93660206547f"
    ),
    "determiner_noun_agreement_irregular_1": (
        "6187a3929e9822124f19bb14f36baf11f62cb496f8121fe5c8aa43da40354cea"
    ),
    "determiner_noun_agreement_with_adjective_1": (
        "049563993ce7e1f435d570f0f7c5f3faf967db5e46012e6fef6babd66ee2fa29"
    ),
    "determiner_noun_agreement_with_adj_irregular_1": (
        "5295801c320687a0cb4049cad7bd5908c1a5ff8f969fef5d27b1b3437eee7df3"
    ),
}
"""Of the canonical JSON of [good sentence, bad sentence] pairs in the corpus's order."""

PARAREL_URL = (
    "https://raw.githubusercontent.com/Hunter-DDM/knowledge-neurons/"
    "922dfd9e05ef55f46af078ba4bd334989a45a618/data/"
)
PAIRS_PATHS = ("PARAREL/query_pairs.json", "BingDistantTREx/query_pairs.json")
"""Upstream keeps the subject-object pairs under both names; the contents decide."""
IOI_NAMES_SHA256 = "f0a2042078beb4cfa3fc5cd867037bd550807912458dfede2182d48e125174c7"
PAIRS_SHA256 = {
    "P103": "e02ec53cbb6e8ed40f2e6cce775399924cf4eacd7b2171710ed54175ab064d57",
    "P138": "ce5f160235ff49d75d0d6aa929ea7cfd5f94c09647f50fa22d95b6ce710be1b3",
    "P159": "3be1868a6c8b22033f9ac5b0b0960b683f6131fabbb6ef6de86274fc8cda2d46",
    "P176": "0118dd6f227f2b8af84c74da87f40a07ac32423a17dadc5af83e80ce40d98728",
    "P264": "6e415f0330206816ae25fcfa5db56abb760c00634f0e824a5375fab18dcbce27",
    "P279": "8a9f918703f750d6f431745c9b0f8331259eeef8c19471591ff86e7ee2611bed",
    "P30": "9d1625845ef4d44e56fd74432df9ce9aceed6dc3d55333c64aa9e95c7aaec003",
    "P407": "2c0f6e8b209f153ecf6aa82cd833a3ae449ff309f167a49d95486824cef2b412",
    "P449": "d681d9a3e922584dc80108a0c7900fac5e97b850ce282acf775f9aebeb3e949c",
    "P495": "36328d925737d4ed83f305d5513feb52c114e04548d293019e81d03840b7fe06",
    "P1376": "084f88477009e0f5430767ecf09df65c11398a4ae78807dca32aa9a02050ddd3",
    "P36": "8e5a446347b2712f8084af8eca13736605102b51a725c6e9bc2ab2943924805e",
}
"""Of the canonical JSON of each relation's [subject, object] pairs in upstream's order."""
PATTERNS_SHA256 = {
    "P103": "edb4df57360abb418ec72e96d518bd42f216ccac578bedbca6f5f769c76951fb",
    "P138": "a15d8689fb52c2245cb76244ac4fce40eef868c445473b94d5888586a46fc3ad",
    "P159": "9679b341f4fb8ea9d48d9398bc439a8869908e485818638a4345437f9ee97002",
    "P176": "13aa5d5af04b58b16b9b6a99ba6c96dbdef7a4fae7dcceaffaa67a2ce5301401",
    "P264": "53274030ad439f0bfb85bda4390fd7f7a9868c8a3f68e151e08c91e596e7bc74",
    "P279": "62ddf00ff2e96028cdc5f63d89d85440011a132d482f4ef6c2b877d73a755032",
    "P30": "69f0152df42e17dca5c3181ddf1ccca8110fba50fd4b61fe9e48c22c8e5adb93",
    "P407": "a87b9e7d7728de1f782013edee4567e7c5fe6242419c691f48a4177d166df532",
    "P449": "cea08d3d7df17f648d84814a7c607476f8fc4291b94976b88658f1b35cf90fb8",
    "P495": "3a2abf7c9ffcf1753e27efa15a915d838c472f5e52f249410d0af47cfac7d9c2",
    "P1376": "67c9bc7dc08bcca42ba5d5fbd11b35c0bcf41a961bba87d760e4b29f196a9bbd",
    "P36": "78cbc36c71073ee993b2f7194c9b216af839859cefb0186cef2c2bc89f377def",
}
"""Of the bytes of each relation's file of patterns."""

TIMEOUT = 30
"""Seconds to wait for an upstream file."""

LOCAL, HUB, UPSTREAM, PAPER = ("DISCOGP_DATA", "Hugging Face hub", "upstream files", "the paper")


def canonical_sha256(value: Any) -> str:
    """SHA-256 of a JSON value written in the one way that has no choices left."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def local_file(*parts: str) -> Path | None:
    """A file under `DISCOGP_DATA`, or None where that is not set or has no such file."""
    folder = os.environ.get("DISCOGP_DATA")
    if not folder:
        return None
    if not Path(folder).is_dir():
        raise TaskError(f"DISCOGP_DATA is set to {folder!r}, which is not a folder; correct it.")
    path = Path(folder, *parts)
    return path if path.is_file() else None


def blimp_pairs(paradigm: str) -> tuple[list[tuple[str, str]], str]:
    """The (good, bad) sentences of a BLiMP paradigm, and where they came from."""
    path = local_file("blimp", f"{paradigm}.jsonl")
    if path is not None:
        source, records = LOCAL, _json_lines(path)
    else:
        source, records = HUB, _hub_records(paradigm)
    pairs = [(str(row["sentence_good"]), str(row["sentence_bad"])) for row in records]
    if canonical_sha256(pairs) != BLIMP_SHA256[paradigm]:
        raise TaskError(_changed(f"the sentences of BLiMP's {paradigm}", path or BLIMP_REPOSITORY))
    return pairs, source


def _hub_records(paradigm: str) -> list[dict[str, Any]]:
    try:
        import datasets

        table = datasets.load_dataset(
            BLIMP_REPOSITORY, paradigm, revision=BLIMP_REVISION, split="train"
        )
        return [dict(row) for row in table]
    except Exception as error:  # the hub's client raises a dozen unrelated kinds
        address = f"https://huggingface.co/datasets/{BLIMP_REPOSITORY}"
        raise TaskError(_unreachable("BLiMP", address)) from error


def pararel_pairs(relation: str) -> tuple[list[tuple[str, str]], str]:
    """The (subject, object) pairs of a relation, and where they came from."""

    def right(content: bytes) -> bool:
        return canonical_sha256(json.loads(content).get(relation)) == PAIRS_SHA256[relation]

    path = local_file("pararel", "query_pairs_12.json")
    content, source = _checked("query_pairs.json", path, PAIRS_PATHS, right)
    return [(subject, answer) for subject, answer in json.loads(content)[relation]], source


def pararel_pattern(relation: str) -> str:
    """The first pattern of a relation, the one the paper's 9,543 queries are made with."""

    def right(content: bytes) -> bool:
        return hashlib.sha256(content).hexdigest() == PATTERNS_SHA256[relation]

    path = local_file("pararel", "patterns", f"{relation}.jsonl")
    upstream = (f"PARAREL/raw_data/patterns/{relation}.jsonl",)
    content, _ = _checked(f"patterns/{relation}.jsonl", path, upstream, right)
    return str(json.loads(content.splitlines()[0])["pattern"])


def ioi_names() -> tuple[list[str], str] | None:
    """The names of the original IOI list under `DISCOGP_DATA`, or None without it."""
    path = local_file("ioi", "ioi_templates.json")
    if path is None:
        return None

    def right(content: bytes) -> bool:
        return canonical_sha256(json.loads(content).get("NAMES")) == IOI_NAMES_SHA256

    content = path.read_bytes()
    if not _is_right(content, right):
        raise TaskError(_changed("the names of IOI", path))
    return json.loads(content)["NAMES"], LOCAL


def _checked(
    cached: str, local: Path | None, upstream: tuple[str, ...], right: Callable[[bytes], bool]
) -> tuple[bytes, str]:
    """A PARAREL file's bytes: local, else from the cache, else downloaded into the cache."""
    if local is not None:
        if not _is_right(local.read_bytes(), right):
            raise TaskError(_changed("the PARAREL data", local))
        return local.read_bytes(), LOCAL
    path = cache_dir() / "pararel" / cached
    if not (path.is_file() and _is_right(path.read_bytes(), right)):
        _download(path, upstream, right)
    return path.read_bytes(), UPSTREAM


def _download(path: Path, upstream: tuple[str, ...], right: Callable[[bytes], bool]) -> None:
    """Put the first of the upstream files with the right contents at `path`, or nothing."""
    reached = False
    for name in upstream:
        try:
            with urllib.request.urlopen(PARAREL_URL + name, timeout=TIMEOUT) as answer:
                content = answer.read()
        except OSError:
            continue
        reached = True
        if _is_right(content, right):
            with atomic_path(path) as temporary:
                temporary.write_bytes(content)
            return
    if reached:
        raise TaskError(_changed("the PARAREL data", PARAREL_URL + upstream[0]))
    raise TaskError(_unreachable("PARAREL", PARAREL_URL + upstream[0]))


def _is_right(content: bytes, right: Callable[[bytes], bool]) -> bool:
    """Whether the check passes; contents it cannot even read are wrong ones."""
    try:
        return right(content)
    except (ValueError, AttributeError):
        return False


def _json_lines(path: Path) -> list[dict[str, Any]]:
    try:
        return [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]
    except ValueError as error:
        raise TaskError(_changed("the sentences", path)) from error


def _unreachable(what: str, address: str) -> str:
    return (
        f"The {what} data could not be had from {address}; connect to the network, or set "
        "DISCOGP_DATA to a folder that holds them (the README says how it is laid out)."
    )


def _changed(what: str, where: object) -> str:
    return (
        f"{what[0].upper()}{what[1:]} at {where} are not the ones the tasks are defined by "
        "(another SHA-256); put the original in its place."
    )
