"""A sheaf as one file: safetensors with packed, compressed masks and JSON metadata.

A mask is packed to bits and compressed as xz: at 2 % density a sheaf of GPT-2 small takes less than
two megabytes instead of 85. The header carries the model's shape and identity, and a hash
over everything, so that a truncated, altered or foreign file is refused with a clear sentence.
"""

from __future__ import annotations

import hashlib
import json
import lzma
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from discogp_lib.errors import SheafError
from discogp_lib.layout import Layout, unflatten
from discogp_lib.paths import atomic_path

FORMAT = "discogp-sheaf/2"
"""Version 2 compresses with xz: SmolLM2's sheaves take 15 % less room than with zlib in version 1,
and some three seconds to write."""
MOST_MEMORY = 1 << 26
"""That a file may ask for to be unpacked, in bytes; ours ask for nine million."""

MOST_WEIGHTS = 1 << 32
"""That a model may have: a small file that names more only fills the memory."""

HEADER_KEYS = {"format", "layout", "model", "checkpoint_sha256", "metadata", "sha256"}


def write_sheaf(
    path: Path,
    *,
    layout: Layout,
    model_name: str,
    checkpoint_sha256: str,
    edge_mask: Tensor,
    weight_masks: Mapping[str, Tensor],
    metadata: Mapping[str, Any],
) -> None:
    """Write atomically; metadata must be plain JSON."""
    flat = torch.cat([weight_masks[name].flatten() for name in layout.weight_shapes])
    tensors = {"edges": pack_mask(edge_mask), "weights": pack_mask(flat)}
    header = {
        "format": FORMAT,
        "layout": json.dumps(asdict(layout)),
        "model": model_name,
        "checkpoint_sha256": checkpoint_sha256,
        "metadata": _as_json(metadata),
    }
    header["sha256"] = _digest(header, tensors)
    try:
        with atomic_path(path) as temporary:
            save_file(tensors, temporary, metadata=header)
    except (OSError, SafetensorError) as error:
        reason = (isinstance(error, OSError) and error.strerror) or error
        raise SheafError(
            f"The sheaf cannot be saved as {str(path)!r} ({reason}); give the name of a file in a "
            "folder that can be written, on a disk with room."
        ) from error


def _as_json(metadata: Mapping[str, Any]) -> str:
    try:
        return json.dumps(dict(metadata), sort_keys=True)
    except (TypeError, ValueError) as error:
        raise SheafError(
            f"The sheaf's metadata cannot be written down ({error}); keep to what JSON knows: "
            "text, numbers, lists and dicts."
        ) from None


def read_sheaf(path: Path) -> dict[str, Any]:
    """The fields of a `Sheaf`, checked."""
    header, tensors = _open(path)
    if header.get("format") != FORMAT:
        raise SheafError(
            f"{path} is not a sheaf of the format {FORMAT!r} (it says "
            f"{header.get('format')!r}); write it again with this version of discogp."
        )
    if set(header) != HEADER_KEYS or set(tensors) != {"edges", "weights"}:
        raise SheafError(f"{path} lacks parts of a sheaf file; get or write it again.")
    if any(tensor.dtype != torch.uint8 for tensor in tensors.values()):
        raise SheafError(f"{path} does not hold packed masks; get or write it again.")
    if header["sha256"] != _digest(header, tensors):
        raise SheafError(f"{path} was altered or damaged: its hash does not match; get it again.")
    layout = _layout(path, header["layout"])
    try:
        edge_mask = unpack_mask(tensors["edges"], layout.graph.n_edges)
        weight_mask = unpack_mask(tensors["weights"], layout.n_weights)
    except SheafError as error:
        raise SheafError(f"{path} is damaged: {error}") from None
    return {
        "layout": layout,
        "model_name": header["model"],
        "checkpoint_sha256": header["checkpoint_sha256"],
        "edge_mask": edge_mask,
        "weight_masks": unflatten(weight_mask, layout),
        "metadata": _metadata(path, header["metadata"]),
    }


def _open(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    if not path.is_file():
        raise SheafError(f"There is no sheaf file {path}.")
    try:
        with safe_open(path, framework="pt") as file:
            return dict(file.metadata() or {}), {k: file.get_tensor(k) for k in file.keys()}
    except (SafetensorError, OSError, ValueError) as error:
        raise SheafError(
            f"{path} is not a whole safetensors file ({error}); get or write it again."
        ) from None


def _layout(path: Path, text: str) -> Layout:
    try:
        layout = Layout(**json.loads(text))
    except (TypeError, ValueError, RecursionError):
        raise SheafError(f"{path} does not describe its model's shape.") from None
    sizes = {f.name: getattr(layout, f.name) for f in fields(Layout) if f.type in (int, "int")}
    if (
        not all(
            isinstance(n, int) and 0 < n < (1 << 24 if name.startswith("d_") else 1 << 10)
            for name, n in sizes.items()
        )
        or layout.n_weights > MOST_WEIGHTS
    ):
        raise SheafError(f"{path} describes a model of an impossible shape.")
    return layout


def _metadata(path: Path, text: str) -> dict[str, Any]:
    try:
        metadata = json.loads(text)
    except (ValueError, RecursionError):
        metadata = None
    if not isinstance(metadata, dict):
        raise SheafError(f"{path} does not say where its sheaf comes from; write it again.")
    return metadata


def _digest(header: Mapping[str, str], tensors: Mapping[str, Tensor]) -> str:
    """Hash over all of the file but the hash itself."""
    digest = hashlib.sha256()
    for key in sorted(HEADER_KEYS - {"sha256"}):
        digest.update(f"{key}={header.get(key)}\n".encode())
    for key in sorted(tensors):
        digest.update(f"{key}:{tensors[key].numel()}\n".encode())
        digest.update(tensors[key].numpy().tobytes())
    return digest.hexdigest()


def pack_mask(mask: Tensor) -> Tensor:
    """A bool mask as compressed bytes."""
    packed = lzma.compress(np.packbits(mask.cpu().numpy()).tobytes())
    return torch.frombuffer(bytearray(packed), dtype=torch.uint8)


def unpack_mask(packed: Tensor, n: int) -> Tensor:
    """The mask of n bits; never expands to more than that, whatever the bytes say."""
    n_bytes = (n + 7) // 8
    try:
        unpacker = lzma.LZMADecompressor(lzma.FORMAT_XZ, MOST_MEMORY)
        data = unpacker.decompress(packed.numpy().tobytes(), n_bytes + 1)
    except lzma.LZMAError:
        data = b""
    if len(data) != n_bytes:
        raise SheafError(f"A mask does not have the {n:,} entries that its model asks for.")
    bits = np.unpackbits(np.frombuffer(data, dtype=np.uint8), count=n)
    return torch.from_numpy(bits.astype(bool))
