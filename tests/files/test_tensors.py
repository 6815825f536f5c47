"""Safetensors with a checked payload."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save
from search_samples import bits_flipped

from aceglt.errors import RunError, TicketError
from aceglt.files import tensors as storage

TENSORS = {"a": torch.tensor([1.5, -2.0]), "b": torch.tensor([[1, 2, 255]], dtype=torch.uint8)}
PAYLOAD = {"name": "é", "values": [1, 2.5, None]}


def _written(folder: Path) -> Path:
    storage.write_tensors(folder / "file", "ticket", 1, PAYLOAD, TENSORS)
    return folder / "file"


def _refusal(path: Path) -> str:
    with pytest.raises(TicketError) as caught:
        storage.read_tensors(path, "ticket", 1, TicketError)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)
    return str(caught.value)


@given(st.integers(1, 3).flatmap(lambda runs: st.lists(st.lists(st.booleans(), min_size=9, max_size=9), min_size=runs, max_size=runs)), st.integers(0, 9))  # noqa: E501  # fmt: skip
def test_unpack_is_the_inverse_of_pack(rows: list[list[bool]], width: int) -> None:
    mask = torch.tensor(rows)[:, :width]
    bits = storage.pack(mask)
    assert bits.shape == (len(rows), (width + 7) // 8)
    assert bits.dtype == torch.uint8
    assert storage.unpack(bits, width).equal(mask)


@pytest.mark.parametrize("bits", [torch.zeros(1, 3, dtype=torch.uint8), torch.zeros(1, 2), torch.zeros(2, dtype=torch.uint8)])  # noqa: E501  # fmt: skip
def test_bits_of_another_size_or_kind_are_not_unpacked(bits: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="16 bits"):
        storage.unpack(bits, 16)


def test_tensors_and_payload_come_back_as_they_were(tmp_path: Path) -> None:
    payload, tensors = storage.read_tensors(_written(tmp_path), "ticket", 1, TicketError)
    assert payload == {**PAYLOAD, "format": 1}
    assert tensors.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert tensors[name].dtype == tensor.dtype
        assert tensors[name].equal(tensor)


def test_a_header_whose_length_begins_as_a_zip_archive_does_is_read(tmp_path: Path) -> None:
    storage.write_tensors(tmp_path / "file", "ticket", 1, {"name": ""}, TENSORS)
    more = int.from_bytes(b"PK", "little") - int.from_bytes((tmp_path / "file").read_bytes()[:8], "little")
    storage.write_tensors(tmp_path / "file", "ticket", 1, {"name": "a" * more}, TENSORS)
    assert (tmp_path / "file").read_bytes().startswith(b"PK")
    assert storage.read_tensors(tmp_path / "file", "ticket", 1, TicketError)[0]["name"] == "a" * more


def test_what_was_read_stays_when_the_file_is_overwritten_in_place(tmp_path: Path) -> None:
    path = _written(tmp_path)
    tensors = storage.read_tensors(path, "ticket", 1, TicketError)[1]
    with open(path, "r+b") as file:
        file.write(bytes(path.stat().st_size))
    assert all(tensors[name].equal(tensor) for name, tensor in TENSORS.items())


def test_tensors_that_share_memory_come_back_as_they_were(tmp_path: Path) -> None:
    whole = torch.arange(12.0).view(3, 4)
    shared = {"whole": whole, "same": whole, "row": whole[1:2], "head": whole[:2]}
    storage.write_tensors(tmp_path / "file", "ticket", 1, {}, shared)
    found = storage.read_tensors(tmp_path / "file", "ticket", 1, TicketError)[1]
    assert {name: tensor.tolist() for name, tensor in found.items()} == {n: t.tolist() for n, t in shared.items()}


def test_empty_strided_and_scalar_tensors_come_back_as_they_were(tmp_path: Path) -> None:
    given = {"empty": torch.zeros(0), "strided": torch.arange(6.0).view(2, 3).T, "scalar": torch.tensor(True)}
    storage.write_tensors(tmp_path / "file", "ticket", 1, {}, given)
    _, tensors = storage.read_tensors(tmp_path / "file", "ticket", 1, TicketError)
    assert all(tensors[name].equal(tensor) and tensors[name].shape == tensor.shape for name, tensor in given.items())


def test_equal_content_gives_equal_bytes(tmp_path: Path) -> None:
    first = _written(tmp_path).read_bytes()
    storage.write_tensors(tmp_path / "file", "ticket", 1, PAYLOAD, dict(reversed(TENSORS.items())))
    assert (tmp_path / "file").read_bytes() == first


def test_a_missing_file_or_a_folder_is_refused(tmp_path: Path) -> None:
    assert "no such file" in _refusal(tmp_path / "nothing")
    assert "is a folder; name the file in it" in _refusal(tmp_path)


def test_a_file_of_another_kind_is_refused_with_the_given_error(tmp_path: Path) -> None:
    path = _written(tmp_path)
    with pytest.raises(RunError, match="not an aceglt checkpoint file"):
        storage.read_tensors(path, "checkpoint", 1, RunError)
    path.write_bytes(save({"a": torch.zeros(1)}))
    assert "not an aceglt ticket file" in _refusal(path)


def test_a_file_of_another_version_is_refused_with_the_way_out(tmp_path: Path) -> None:
    storage.write_tensors(tmp_path / "file", "ticket", 7, {}, {})
    message = _refusal(tmp_path / "file")
    assert "'7'" in message
    assert "install the aceglt that wrote it" in message


def test_a_file_cut_at_any_length_is_refused(tmp_path: Path) -> None:
    path = _written(tmp_path)
    content = path.read_bytes()
    for length in range(len(content)):
        path.write_bytes(content[:length])
        _refusal(path)
    path.write_bytes(content + b"\0")
    _refusal(path)


def test_a_file_with_any_bit_flipped_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    storage.write_tensors(path, "ticket", 1, {}, {"a": torch.tensor([1.5])})
    for damaged in bits_flipped(path.read_bytes()):
        path.write_bytes(damaged)
        _refusal(path)


@pytest.mark.parametrize(
    ("old", "new"), [(b'"F32"', b'"I32"'), (b'"shape":[1,3]', b'"shape":[3,1]'), (b'"b":', b'"c":')]
)
def test_a_tensor_that_changed_its_type_shape_or_name_is_refused(old: bytes, new: bytes, tmp_path: Path) -> None:
    path = _written(tmp_path)
    content = path.read_bytes()
    assert content.count(old) == 1
    path.write_bytes(content.replace(old, new))
    assert "checksum" in _refusal(path)


@pytest.mark.parametrize("text", ["", "no json", "[1]", "3", "[" * 100_000, '{"a":'])
def test_a_payload_that_is_no_json_object_is_refused(tmp_path: Path, text: str) -> None:
    metadata = {"kind": "ticket", "format": "1", "payload": text, "sha256": storage._digest(text, {})}
    (tmp_path / "file").write_bytes(save({}, metadata))
    assert "payload" in _refusal(tmp_path / "file")


_SHAPES = st.lists(st.sampled_from([0, 1, 2, 3, 2**31, 2**63 - 1, -1]), max_size=3)
_DTYPES = st.sampled_from(["F32", "F64", "BF16", "U8", "I64", "U64", "BOOL", "F8_E4M3", "F8_E8M0", "F4", "C64", "Q9"])


@settings(max_examples=200)
@given(_DTYPES, _SHAPES, st.integers(0, 64), st.binary(max_size=64))
def test_a_hostile_header_is_refused(dtype: str, shape: list[int], end: int, body: bytes) -> None:
    header = {
        "__metadata__": {"kind": "ticket", "format": "1", "payload": "{}", "sha256": "0" * 64},
        "a": {"dtype": dtype, "shape": shape, "data_offsets": [0, end]},
    }
    text = json.dumps(header).encode()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        path.write_bytes(len(text).to_bytes(8, "little") + text + body)
        _refusal(path)


def test_a_text_file_is_told_apart_from_a_large_header(tmp_path: Path) -> None:
    path = tmp_path / "my_module.py"
    path.write_text("import torch\n")
    assert "it does not begin as a safetensors file does" in _refusal(path)


@settings(max_examples=200)
@given(st.binary(max_size=200))
def test_random_bytes_are_refused(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        path.write_bytes(content)
        _refusal(path)
