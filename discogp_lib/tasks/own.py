"""Tasks of one's own: pairs from Python or from a JSON Lines file, checked line by line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from discogp_lib.errors import TaskError
from discogp_lib.tasks.base import Row, Task
from discogp_lib.tasks.build import MINIMUM_ROWS, build_task
from discogp_lib.tasks.encode import EncodedRow, encode_rows, unknown_word

if TYPE_CHECKING:
    from discogp_lib.model import MaskedTransformer

Numbered = list[tuple[int, Row]]
Problems = list[tuple[int, str]]

REQUIRED, OPTIONAL = ("prompt", "target", "foil"), ("corrupted", "group")
"""Fields of a row."""

SHOWN = 5
"""Problems told in full; the rest is counted."""


def task_from_pairs(
    name: str,
    prompts: Sequence[str],
    targets: Sequence[str],
    foils: Sequence[str],
    model: MaskedTransformer,
    *,
    seed: int = 0,
) -> Task:
    """See `Task.from_pairs`."""
    columns = {"prompts": prompts, "targets": targets, "foils": foils}
    for field, column in columns.items():
        if isinstance(column, str):
            raise TaskError(f"Task {name!r}: {field} is one string; give a list of strings.")
    if len({len(column) for column in columns.values()}) > 1:
        counts = ", ".join(f"{len(column)} {field}" for field, column in columns.items())
        raise TaskError(f"Task {name!r} has {counts}; give as many of each.")
    records = [
        (number, {"prompt": prompt, "target": target, "foil": foil})
        for number, (prompt, target, foil) in enumerate(
            zip(prompts, targets, foils, strict=True), start=1
        )
    ]
    rows, problems = _rows(records)
    return _build(name, f"Task {name!r}", "row", rows, problems, model, seed)


def task_from_jsonl(path: str | Path, model: MaskedTransformer, *, seed: int = 0) -> Task:
    """See `Task.from_jsonl`."""
    path = Path(path)
    records, problems = _records(path)
    rows, more = _rows(records)
    return _build(
        path.stem, f"The task file {str(path)!r}", "line", rows, problems + more, model, seed
    )


def _records(path: Path) -> tuple[list[tuple[int, dict[str, Any]]], Problems]:
    """The file's JSON objects with their line numbers; blank lines are left out."""
    try:
        lines = path.read_bytes().removeprefix(b"\xef\xbb\xbf").split(b"\n")
    except OSError as error:
        reason = error.strerror or "it cannot be read"
        raise TaskError(f"The task file {str(path)!r} cannot be opened: {reason}.") from error
    records: list[tuple[int, dict[str, Any]]] = []
    problems: Problems = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line.decode("utf-8"))
        except UnicodeDecodeError:
            problems.append((number, "not UTF-8 text; save the file in that encoding"))
        except (ValueError, RecursionError):
            problems.append((number, "not JSON; write one object in braces per line"))
        else:
            if isinstance(record, dict):
                records.append((number, record))
            else:
                problems.append((number, "not a JSON object; write one in braces per line"))
    return records, problems


def _rows(records: Sequence[tuple[int, dict[str, Any]]]) -> tuple[Numbered, Problems]:
    """Rows of the records whose fields are right, and what is wrong with the others."""
    rows: Numbered = []
    problems: Problems = []
    for number, record in records:
        problem = _field_problem(record)
        if problem:
            problems.append((number, problem))
            continue
        target, foil = (" " + record[field].strip() for field in ("target", "foil"))
        rows.append(
            (
                number,
                Row(
                    prompt=record["prompt"].rstrip(),
                    target=target,
                    foil=foil,
                    corrupted=record.get("corrupted", "").rstrip(),
                    group=record.get("group", target.strip()),
                ),
            )
        )
    return rows, problems


def _field_problem(record: dict[str, Any]) -> str | None:
    """What is wrong with a record before any tokenizer sees it."""
    known = (*REQUIRED, *OPTIONAL)
    for field in record:
        if field not in known:
            return f"the field {field!r} is unknown; known are {', '.join(known)}"
    for field in REQUIRED:
        if field not in record:
            return f"the field {field!r} is missing"
    for field in known:
        if field in record and not isinstance(record[field], str):
            return f"the field {field!r} is not a string"
        if field in record and not record[field].strip():
            return f"the field {field!r} is empty"
        if field in record and not _is_text(record[field]):
            return f"the field {field!r} holds half a character; write it out or leave it out"
    if record["target"].strip() == record["foil"].strip():
        return f"the target {record['target'].strip()!r} is also the foil"
    return None


def _is_text(value: str) -> bool:
    """Whether a string can be written down: JSON can spell halves of characters that cannot."""
    return not any("\ud800" <= mark <= "\udfff" for mark in value)


def _token_problems(rows: Numbered, model: MaskedTransformer) -> Problems:
    """What a model's tokenizer cannot do with the rows."""
    encoded = encode_rows([row for _, row in rows], model)
    problems = [
        (number, _token_problem(item, model))
        for (number, _), item in zip(rows, encoded, strict=True)
    ]
    return [(number, problem) for number, problem in problems if problem]


def _token_problem(item: EncodedRow, model: MaskedTransformer) -> str:
    """What is wrong with a row as tokens, or nothing."""
    if item.unknown:
        word = unknown_word(item.row, model)
        return f"the tokenizer of {model.name!r} does not know {word!r}"
    for field, word, tokens in (
        ("target", item.row.target, item.target),
        ("foil", str(item.row.foil), item.foil),
    ):
        if len(tokens) > 1:
            return f"the {field} {word!r} is {len(tokens)} tokens; use a word of one"
    length, most = len(item.prompt), model.most_tokens
    if length > most:
        return f"the prompt is {length} tokens long, and {model.name!r} reads {most} at most"
    if item.corrupted and len(item.corrupted) != length:
        return (
            f"the corrupted prompt is {len(item.corrupted)} tokens long, the prompt {length}; "
            "make them equal"
        )
    return ""


def _build(
    name: str,
    where: str,
    unit: str,
    rows: Numbered,
    problems: Problems,
    model: MaskedTransformer,
    seed: int,
) -> Task:
    """The task, or all that is wrong in one sentence."""
    problems = sorted(problems + _token_problems(rows, model))
    if problems:
        told = "; ".join(f"{unit} {number}: {problem}" for number, problem in problems[:SHOWN])
        rest = len(problems) - SHOWN
        more = f"; and {rest} more" if rest > 0 else ""
        raise TaskError(f"{where} is not right at {told}{more}.")
    distinct = len({row.prompt for _, row in rows})
    if distinct < MINIMUM_ROWS:
        raise TaskError(
            f"{where} has {distinct} distinct prompts, and a task needs "
            f"{MINIMUM_ROWS} at least; add some."
        )
    return build_task(name, name, [row for _, row in rows], model, source="own", seed=seed)
