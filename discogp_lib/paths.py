"""Where files live, and how a file is written so that nobody ever reads half of it."""

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
REPO = PACKAGE.parent
RESULTS = REPO / "results"
FIGURES = REPO / "figures"


def cache_dir() -> Path:
    """The folder for downloads: `DISCOGP_CACHE`, else `~/.cache/discogp`."""
    return Path(os.environ.get("DISCOGP_CACHE") or Path.home() / ".cache" / "discogp")


@contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """A temporary path beside `path` that takes its place when the block ends without an error.

    Readers see the old file or the new one, never a part; an interrupted block leaves `path` alone.
    """
    path = Path(path)
    if path.is_dir():  # said now, and not of the temporary path when all is written
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _umask() -> int:
    """The process's umask; the only portable way to read it is to set it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
