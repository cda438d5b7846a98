"""A file gives back the very masks it was given, or says in a sentence why not."""

import json
import lzma
import resource
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import save_file

from discogp_lib.errors import SheafError
from discogp_lib.layout import Layout, unflatten
from discogp_lib.sheaf import Sheaf
from discogp_lib.sheaf_file import FORMAT, _digest, pack_mask, unpack_mask
from tests.reference import masked, random_gpt2, random_llama, random_sheaf

METADATA = {"task": "ioi", "seed": 3, "config": {"steps": 300, "rise": 0.8}, "naïve": [None, True]}


@pytest.fixture
def sheaf() -> Sheaf:
    return replace(random_sheaf(masked(random_gpt2()), 0.3, 0.1), metadata=METADATA)


@pytest.fixture
def path(sheaf: Sheaf, tmp_path: Path) -> Path:
    sheaf.save(tmp_path / "ioi.sheaf")
    return tmp_path / "ioi.sheaf"


def parts(path: Path) -> tuple[dict[str, str], dict[str, torch.Tensor]]:
    with safe_open(path, framework="pt") as file:
        return dict(file.metadata()), {key: file.get_tensor(key) for key in file.keys()}


def rewrite(path: Path, header: dict[str, str], tensors: dict[str, torch.Tensor]) -> None:
    """As a careful stranger would: with a hash that fits."""
    header = {k: v for k, v in header.items() if k != "sha256"}
    save_file(tensors, path, metadata={**header, "sha256": _digest(header, tensors)})


@pytest.mark.parametrize("make", [random_gpt2, random_llama])
@pytest.mark.parametrize("density", [0.0, 0.02, 0.5, 1.0])
def test_round_trip_is_bit_for_bit(make, density, tmp_path: Path):
    sheaf = random_sheaf(masked(make()), density, density)
    sheaf.save(tmp_path / "a.sheaf")
    loaded = Sheaf.load(tmp_path / "a.sheaf")
    assert loaded == sheaf
    assert torch.equal(loaded.edge_mask, sheaf.edge_mask)
    assert torch.equal(loaded.flat_weight_mask, sheaf.flat_weight_mask)
    assert list(loaded.weight_masks) == list(sheaf.weight_masks)
    assert loaded.layout == sheaf.layout
    assert (loaded.edge_density, loaded.weight_density) == (
        sheaf.edge_density,
        sheaf.weight_density,
    )


def test_metadata_and_identity_are_kept(sheaf: Sheaf, path: Path):
    loaded = Sheaf.load(str(path))
    assert loaded.metadata == METADATA
    assert loaded.model_name == sheaf.model_name
    assert loaded.checkpoint_sha256 == sheaf.checkpoint_sha256


def test_file_is_replaced_whole(sheaf: Sheaf, path: Path):
    (~sheaf).save(path)
    assert Sheaf.load(path) == ~sheaf
    assert [p.name for p in path.parent.iterdir()] == ["ioi.sheaf"]


@pytest.mark.parametrize(
    ("place", "reason"), [("", "Is a directory"), ("taken/a.sheaf", "File exists")]
)
def test_a_place_that_cannot_be_written_is_told(
    sheaf: Sheaf, tmp_path: Path, place: str, reason: str
):
    (tmp_path / "taken").write_text("a file, no folder")
    with pytest.raises(SheafError) as error:
        sheaf.save(tmp_path / place)
    assert f"cannot be saved as '{tmp_path / place}' ({reason}); give" in str(error.value)
    assert ".part" not in str(error.value)
    assert [p.name for p in tmp_path.iterdir()] == ["taken"]


def test_a_disk_without_room_leaves_the_old_file(sheaf: Sheaf, path: Path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(SheafError) as error:
            (~sheaf).save(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert f"cannot be saved as '{path}'" in str(error.value)
    assert Sheaf.load(path) == sheaf
    assert [p.name for p in path.parent.iterdir()] == ["ioi.sheaf"]


def test_gpt2_small_at_two_per_cent_takes_less_than_two_megabytes(tmp_path: Path):
    layout = Layout("gpt2", 12, 12, 12, 768, 64, 3072, True, True)
    noise = torch.Generator().manual_seed(0)
    # Where a mask is on is all noise here: real sheaves have more order, and are smaller.
    kept = torch.zeros(layout.n_weights, dtype=torch.bool)
    kept[torch.randint(layout.n_weights, (1_717_500,), generator=noise)] = True
    edges = torch.rand(layout.graph.n_edges, generator=noise) < 0.02
    sheaf = Sheaf(layout, "gpt2", "0" * 64, edges, unflatten(kept, layout))
    assert 0.0199 < sheaf.weight_density < 0.0201
    sheaf.save(tmp_path / "gpt2.sheaf")
    assert (tmp_path / "gpt2.sheaf").stat().st_size < 2_000_000
    loaded = Sheaf.load(tmp_path / "gpt2.sheaf")
    assert torch.equal(loaded.flat_weight_mask, kept)
    assert torch.equal(loaded.edge_mask, edges)


# -- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.999])
def test_truncated_file(path: Path, share):
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(SheafError, match=r"ioi\.sheaf is not a whole safetensors file"):
        Sheaf.load(path)


def test_any_altered_byte_is_noticed(path: Path):
    data = path.read_bytes()
    step = max(1, len(data) // 150)
    for i in [*range(0, len(data), step), len(data) - 1]:
        changed = bytearray(data)
        changed[i] ^= 0x04
        path.write_bytes(changed)
        with pytest.raises(SheafError):
            Sheaf.load(path)


def test_wrong_version(path: Path):
    header, tensors = parts(path)
    rewrite(path, {**header, "format": "discogp-sheaf/99"}, tensors)
    with pytest.raises(SheafError, match=r"'discogp-sheaf/99'.*with this version"):
        Sheaf.load(path)


def test_files_that_are_no_sheaves(tmp_path: Path):
    text = tmp_path / "notes.txt"
    text.write_text("a sheaf, but in words only")
    with pytest.raises(SheafError, match="not a whole safetensors file"):
        Sheaf.load(text)
    weights = tmp_path / "model.safetensors"
    save_file({"w": torch.zeros(3)}, weights)
    with pytest.raises(SheafError, match=FORMAT):
        Sheaf.load(weights)
    with pytest.raises(SheafError, match="There is no sheaf file"):
        Sheaf.load(tmp_path / "absent.sheaf")
    with pytest.raises(SheafError, match="There is no sheaf file"):
        Sheaf.load(tmp_path)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("layout", "[]"),
        ("layout", "not json"),
        ("layout", json.dumps({"n_layers": 2})),
        ("metadata", "not json"),
        ("metadata", "[1]"),
    ],
)
def test_header_that_makes_no_sense(path: Path, key, value):
    header, tensors = parts(path)
    rewrite(path, {**header, key: value}, tensors)
    with pytest.raises(SheafError):
        Sheaf.load(path)


@pytest.mark.parametrize(
    "change",
    [{"n_layers": -1}, {"d_mlp": 1 << 30}, {"n_heads": "two"}, {"n_layers": 1}, {"d_mlp": 49},
     {"n_layers": 1 << 20}, {"n_layers": 1000, "d_mlp": 1 << 23}],
)  # fmt: skip
def test_shape_that_does_not_fit_the_masks(path: Path, change):
    header, tensors = parts(path)
    layout = {**json.loads(header["layout"]), **change}
    rewrite(path, {**header, "layout": json.dumps(layout)}, tensors)
    with pytest.raises(SheafError, match=r"shape|is damaged"):
        Sheaf.load(path)


def test_a_header_nested_too_deeply(path: Path):
    header, tensors = parts(path)
    for key in ("layout", "metadata"):
        rewrite(path, {**header, key: "[" * 100_000}, tensors)
        with pytest.raises(SheafError):
            Sheaf.load(path)


def test_metadata_that_cannot_be_written_down(sheaf: Sheaf, path: Path):
    before = path.read_bytes()
    with pytest.raises(SheafError, match="keep to what JSON knows"):
        replace(sheaf, metadata={"task": object()}).save(path)
    assert path.read_bytes() == before


def test_missing_parts(path: Path):
    header, tensors = parts(path)
    rewrite(path, header, {"edges": tensors["edges"]})
    with pytest.raises(SheafError, match="lacks parts"):
        Sheaf.load(path)
    rewrite(path, {k: v for k, v in header.items() if k != "model"}, tensors)
    with pytest.raises(SheafError, match="lacks parts"):
        Sheaf.load(path)


def test_masks_of_another_type(path: Path):
    header, tensors = parts(path)
    save_file({**tensors, "edges": torch.zeros(5, dtype=torch.bfloat16)}, path, metadata=header)
    with pytest.raises(SheafError):
        Sheaf.load(path)


@given(st.lists(st.booleans(), min_size=1, max_size=70))
def test_packed_masks_come_back(bits):
    mask = torch.tensor(bits)
    packed = pack_mask(mask)
    assert torch.equal(unpack_mask(packed, len(mask)), mask)
    with pytest.raises(SheafError):
        unpack_mask(packed, len(mask) + 8)


def test_a_bomb_is_not_expanded():
    bomb = pack_mask(torch.zeros(8_000_000, dtype=torch.bool))
    assert bomb.numel() < 2000
    with pytest.raises(SheafError, match="does not have the 100 entries"):
        unpack_mask(bomb, 100)


def test_a_file_that_asks_for_much_memory_is_refused():
    greedy = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 1 << 28}]
    packed = lzma.compress(bytes(8), filters=greedy)
    with pytest.raises(SheafError, match="does not have the 64 entries"):
        unpack_mask(torch.frombuffer(bytearray(packed), dtype=torch.uint8), 64)
    assert not unpack_mask(pack_mask(torch.zeros(64, dtype=torch.bool)), 64).any()
