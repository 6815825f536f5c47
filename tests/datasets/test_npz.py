"""A user's own `.npz` file."""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import resource
import tempfile
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from aceglt.datasets import GraphData, archive, load_npz, save_npz
from aceglt.errors import ConfigError, DataError
from aceglt.numerics.csr import stored_bytes

TENSORS = ("x", "edge_index", "y", "train_mask", "val_mask", "test_mask")


def _arrays(**changes: Any) -> dict[str, Any]:
    """Four nodes, three features; a change to None leaves the array out."""
    arrays: dict[str, Any] = {
        "x": np.arange(12, dtype=np.float32).reshape(4, 3),
        "edge_index": np.array([[0, 1, 2], [1, 2, 3]]),
        "y": np.array([0, 1, 1, 0]),
        "train_mask": np.array([True, True, False, False]),
        "val_mask": np.array([False, False, True, False]),
        "test_mask": np.array([False, False, False, True]),
    }
    arrays.update(changes)
    return {name: array for name, array in arrays.items() if array is not None}


def _sparse(**changes: Any) -> dict[str, Any]:
    parts: dict[str, Any] = {
        "x": None,
        "x_data": np.array([1.0, 2.0, 3.0, 4.0]),
        "x_indices": np.array([2, 0, 1, 1], dtype=np.int32),
        "x_indptr": np.array([0, 1, 1, 2, 4], dtype=np.int32),
        "x_shape": np.array([4, 3]),
    }
    parts.update(changes)
    return _arrays(**parts)


def _saved(folder: Path, arrays: dict[str, Any]) -> Path:
    np.savez(folder / "mine.npz", **arrays)
    return folder / "mine.npz"


def _assert_equal(one: GraphData, other: GraphData) -> None:
    for name in TENSORS:
        assert getattr(one, name).dtype == getattr(other, name).dtype, name
        assert getattr(one, name).to_dense().equal(getattr(other, name).to_dense()), name


def _assert_consistent(data: GraphData) -> None:
    nodes = len(data.x)
    assert data.x.dtype == torch.float32
    assert data.edge_index.dtype == data.y.dtype == torch.int64
    assert data.edge_index.shape[0] == 2
    assert data.edge_index.numel() == 0 or 0 <= int(data.edge_index.min()) <= int(data.edge_index.max()) < nodes
    assert data.y.shape == data.train_mask.shape == data.val_mask.shape == data.test_mask.shape == (nodes,)


def test_several_splits_and_the_metric_are_kept(tmp_path: Path) -> None:
    splits = np.eye(4, dtype=bool)[[0, 1, 2]]  # [3, 4]
    several = {"train_masks": splits, "val_masks": np.roll(splits, 1, axis=1), "test_masks": np.roll(splits, 2, axis=1)}
    data = load_npz(_saved(tmp_path, _arrays(**several, metric=np.array("macro_f1"))))
    assert data.metric == "macro_f1"
    assert data.train_mask is not None
    assert data.train_mask.tolist() == splits.T.tolist()  # as PyG has them; the single masks are not read
    save_npz(tmp_path / "again.npz", data)
    again = load_npz(tmp_path / "again.npz")
    assert again.metric == data.metric
    _assert_equal(again, data)


def test_a_file_without_masks_has_none(tmp_path: Path) -> None:
    data = load_npz(_saved(tmp_path, _arrays(train_mask=None, val_mask=None, test_mask=None)))
    assert data.train_mask is data.val_mask is data.test_mask is None


def test_what_is_saved_is_loaded(tmp_path: Path, small: GraphData) -> None:
    save_npz(tmp_path / "small.npz", small)
    loaded = load_npz(tmp_path / "small.npz")
    assert loaded.name == "small"
    _assert_equal(loaded, small)


def test_sparse_features_are_saved_sparse(tmp_path: Path, small: GraphData) -> None:
    x = torch.zeros(4, 50)
    x[1, 7], x[3, 0] = 0.25, -1.0
    masks = (small.train_mask, small.val_mask, small.test_mask)
    data = GraphData("g", x, small.edge_index, small.y, *masks)
    save_npz(tmp_path / "g.npz", data)
    with np.load(tmp_path / "g.npz") as arrays:
        assert "x" not in arrays
        assert arrays["x_data"].shape == (2,)
    loaded = load_npz(tmp_path / "g.npz")
    assert loaded.x.layout == torch.sparse_csr
    _assert_equal(loaded, data)


@pytest.mark.parametrize("layout", ["coo", "csr", "csc"])
def test_sparse_tensors_are_saved_as_the_dense_ones_are(tmp_path: Path, small: GraphData, layout: str) -> None:
    x = torch.zeros(4, 50)
    x[1, 7], x[3, 0] = 0.25, -1.0
    for name, made in (("dense", x), ("sparse", getattr(x, f"to_sparse_{layout}")())):
        save_npz(tmp_path / f"{name}.npz", replace(small, x=made))
    assert (tmp_path / "dense.npz").read_bytes() == (tmp_path / "sparse.npz").read_bytes()


def test_loaded_features_are_made_dense_on_request(tmp_path: Path, small: GraphData) -> None:
    loaded = load_npz(_saved(tmp_path, _sparse()))
    assert loaded.dense().x.tolist() == [[0, 0, 1], [0, 0, 0], [2, 0, 0], [0, 7, 0]]
    assert small.dense() is small


def test_the_sparse_format_is_that_of_scipy(tmp_path: Path) -> None:
    csr = pytest.importorskip("scipy.sparse").random(4, 6, density=0.5, format="csr", rng=0)
    parts = {"x_data": csr.data, "x_indices": csr.indices, "x_indptr": csr.indptr, "x_shape": csr.shape}
    loaded = load_npz(_saved(tmp_path, _sparse(**parts)))
    assert loaded.x.to_dense().equal(torch.from_numpy(csr.toarray().astype(np.float32)))


def test_repeated_sparse_entries_add_up(tmp_path: Path) -> None:
    loaded = load_npz(_saved(tmp_path, _sparse()))
    assert loaded.x.to_dense().tolist() == [[0, 0, 1], [0, 0, 0], [2, 0, 0], [0, 7, 0]]


def test_what_x_shape_claims_is_not_allocated(tmp_path: Path) -> None:
    nothing = {"x_data": np.zeros(0), "x_indices": np.zeros(0, int)}
    many = "features for 0 entries"
    for shape, words in (
        ([10**9, 2], "array x_indptr: "),
        ([4, 2 * 10**9], many),
        ([4, 2**62], many),
        ([4, 5000], many),
    ):
        parts = {**nothing, "x_indptr": np.zeros(5, int), "x_shape": np.array(shape)}
        path = _saved(tmp_path, _sparse(**parts))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with pytest.raises(DataError, match=words):
            load_npz(path)
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # KiB


def test_dense_features_that_are_all_zero_are_not_believed_to_be_thousands(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="5000 features for 4 entries"):
        load_npz(_saved(tmp_path, _arrays(x=np.eye(4, 5000))))


def test_many_features_take_no_room_beside_their_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _saved(tmp_path, _sparse(x_shape=np.array([4, 2**20])))
    monkeypatch.setenv("ACEGLT_READ_GIB", "64")  # weights for so many are meant
    assert stored_bytes(load_npz(path).x) < 100


@pytest.mark.parametrize("dtype", ["<f2", ">f4", "<f8", "u1", "<i8", "?"])
def test_any_numbers_become_float32(tmp_path: Path, dtype: str) -> None:
    x = np.array([[1, 0, 1], [0, 1, 1], [0, 0, 0], [1, 1, 1]])
    loaded = load_npz(_saved(tmp_path, _arrays(x=x.astype(dtype))))
    assert loaded.x.equal(torch.from_numpy(x.astype(np.float32)))


def test_fortran_order_and_small_integers_are_read(tmp_path: Path) -> None:
    arrays = _arrays()
    changed = _arrays(
        x=np.asfortranarray(arrays["x"]), edge_index=arrays["edge_index"].astype(np.uint8), other=np.arange(3)
    )
    np.savez_compressed(tmp_path / "f.npz", **changed)
    loaded = load_npz(tmp_path / "f.npz")
    assert loaded.x.is_contiguous()
    _assert_equal(loaded, load_npz(_saved(tmp_path, arrays)))


def test_loaded_tensors_can_be_written_to(tmp_path: Path) -> None:
    loaded = load_npz(_saved(tmp_path, _arrays()))
    loaded.x[0, 0] = 5
    assert loaded.x[0, 0] == 5


def test_a_graph_without_edges_is_read(tmp_path: Path) -> None:
    loaded = load_npz(_saved(tmp_path, _arrays(edge_index=np.zeros((2, 0), dtype=np.int64))))
    assert loaded.edge_index.shape == (2, 0)


WRONG = {
    "no x": (_arrays(x=None), r"array x: found no such array, only edge_index, .*expected numbers \[any, any\]"),
    "no mask": (_arrays(val_mask=None), r"array val_mask: found no such array"),
    "x 1-d": (_arrays(x=np.ones(4)), r"array x: found float64 \[4\], expected numbers \[any, any\]"),
    "x complex": (_arrays(x=np.ones((4, 3), complex)), r"array x: found complex128 \[4, 3\], expected numbers"),
    "x text": (_arrays(x=np.full((4, 3), "a")), r"array x: found <U1 \[4, 3\], expected numbers"),
    "x empty": (_arrays(x=np.ones((0, 3))), r"array x: found shape \[0, 3\], expected at least one node"),
    "x NaN": (_arrays(x=np.full((4, 3), np.nan)), r"array x: found NaN.*, expected finite"),
    "x huge": (_arrays(x=np.full((4, 3), 1e300)), r"array x: found NaN.*huge.*, expected finite"),
    "x objects": (_arrays(x=np.full((4, 3), None)), r"array x: found dtype object, expected plain numbers"),
    "x records": (_arrays(x=np.zeros((4, 3), "f4,f4")), r"array x: found dtype .*, expected plain numbers"),
    "arcs float": (_arrays(edge_index=np.ones((2, 3))), r"edge_index: found float64 \[2, 3\], expected integers"),
    "arcs turned": (_arrays(edge_index=np.ones((3, 2), int)), r"edge_index: .*expected integers \[2, any\]"),
    "arcs high": (_arrays(edge_index=np.array([[0], [4]])), r"edge_index: found values from 0 to 4, expected 0 to 3"),
    "arcs low": (_arrays(edge_index=np.array([[0], [-1]])), r"edge_index: found values from -1 to 0"),
    "y short": (_arrays(y=np.zeros(3, int)), r"array y: found int64 \[3\], expected integers \[4\]"),
    "y float": (_arrays(y=np.zeros(4)), r"array y: found float64 \[4\], expected integers \[4\]"),
    "y huge": (_arrays(y=np.full(4, 2**64 - 1, np.uint64)), r"array y: found values from 18446744073709551615"),
    "indices": (
        _arrays(train_mask=np.array([0, 1])),
        r"train_mask: found int64 \[2\], expected booleans \(a mask, not indices\) \[4\]",
    ),
    "0/1 mask": (_arrays(test_mask=np.ones(4, int)), r"test_mask: .*expected booleans \(a mask, not indices\)"),
    "mask short": (_arrays(val_mask=np.ones(3, bool)), r"val_mask: found bool \[3\], expected booleans"),
    "masks of other numbers of splits": (
        _arrays(**{f"{part}_masks": np.ones((1 + len(part), 4), bool) for part in ("train", "val", "test")}),
        r"val_masks: found bool \[4, 4\], expected booleans .* \[6, 4\]",
    ),
    "no split": (
        _arrays(**{f"{part}_masks": np.ones((0, 4), bool) for part in ("train", "val", "test")}),
        r"train_masks: found no split, expected at least one",
    ),
    "metric": (_arrays(metric=np.array(3)), r"array metric: found int64 \[\], expected text \[\]"),
    "unknown metric": (_arrays(metric=np.array("f1")), r"array metric: found 'f1', expected one of accuracy, roc_auc"),
    "both": (_sparse(x=np.ones((4, 3))), r"array x: found x_data as well, expected either"),
    "part": (_sparse(x_indptr=None), r"array x_indptr: found no such array"),
    "column": (_sparse(x_indices=np.array([2, 0, 1, 3])), r"x_indices: found values from 0 to 3, expected 0 to 2"),
    "falling": (_sparse(x_indptr=np.array([0, 2, 1, 2, 4])), r"x_indptr: .*never falls, from 0 to 4"),
    "not all": (_sparse(x_indptr=np.array([0, 1, 1, 2, 3])), r"x_indptr: .*never falls, from 0 to 4"),
    "rows": (_sparse(x_indptr=np.array([0, 4])), r"x_indptr: found int64 \[2\], expected integers \[5\]"),
    "absurd": (_sparse(x_shape=np.array([10**9, 10**9])), "array x_shape: 1000000000 features for 4 entries"),
    "negative": (_sparse(x_shape=np.array([-4, 3])), r"x_shape: found \[-4, 3\]"),
    "overflow": (_sparse(x_data=np.full(4, 1e300)), r"x_data: found NaN"),
    "infinite sum": (_sparse(x_data=np.full(4, 3e38)), r"x_data: found NaN"),
    "sparse, empty": (_sparse(x_shape=np.array([4, 0])), r"x_shape: found shape \[4, 0\], expected at least one node"),
}


@pytest.mark.parametrize("case", list(WRONG))
def test_a_wrong_array_is_named_with_what_was_found_and_expected(tmp_path: Path, case: str) -> None:
    arrays, message = WRONG[case]
    path = _saved(tmp_path, arrays)
    with pytest.raises(DataError, match=message) as caught:
        load_npz(path)
    assert str(caught.value).startswith(f"{path}: array ")
    assert "\n" not in str(caught.value)


def test_a_missing_file_a_folder_and_another_format_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.npz: no such file"):
        load_npz(tmp_path / "none.npz")
    with pytest.raises(DataError, match=r"is a folder, expected an \.npz file"):
        load_npz(tmp_path)
    (tmp_path / "text.npz").write_text("x,y\n1,2\n")
    with pytest.raises(DataError, match=r"text\.npz: found BadZipFile.*expected a readable \.npz file"):
        load_npz(tmp_path / "text.npz")


def test_objects_are_never_unpickled(tmp_path: Path) -> None:
    class Attack:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.mkdir, (str(tmp_path / "attacked"),)

    _zip(tmp_path / "o.npz", "x.npy", _npy(_header("(4, 3)", "|O"), pickle.dumps(Attack())))
    with pytest.raises(DataError, match="array x: found dtype object"):
        load_npz(tmp_path / "o.npz")
    assert not (tmp_path / "attacked").exists()


def _header(shape: str, descr: str = "<f4") -> bytes:
    return f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()


def _npy(header: bytes, content: bytes = b"", version: bytes = b"\x01\x00") -> bytes:
    return b"\x93NUMPY" + version + len(header).to_bytes(2, "little") + header + content


def _zip(path: Path, name: str, content: bytes, method: int = zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr(name, content)


DAMAGED = r"expected an undamaged array"
HEADERS = {
    _header("(1000000000, 1000000000)"): r"found 8 bytes, expected 4000000000000000000",
    _header("(-1, -2)"): r"found shape \[-1, -2\]",
    _header("(1, 1)"): r"found 8 bytes, expected 4 for float32 \[1, 1\]",
    _header("(1, 1)", "<q9"): DAMAGED,
    _header("(1, 1"): DAMAGED,
    b"((((((((((\n": DAMAGED,
    b"\xff\xfe": DAMAGED,
    b"": DAMAGED,
}


@pytest.mark.parametrize("header", list(HEADERS))
def test_a_header_that_lies_is_refused_before_anything_is_allocated(tmp_path: Path, header: bytes) -> None:
    _zip(tmp_path / "h.npz", "x.npy", _npy(header, b"12345678"))
    with pytest.raises(DataError, match=rf"h\.npz: array x: .*{HEADERS[header]}"):
        load_npz(tmp_path / "h.npz")


def test_other_versions_and_compressions_are_refused(tmp_path: Path) -> None:
    _zip(tmp_path / "v.npz", "x.npy", _npy(b"{}", version=b"\x09\x00"))
    with pytest.raises(DataError, match=r"array x: .*expected"):
        load_npz(tmp_path / "v.npz")
    _zip(tmp_path / "b.npz", "x.npy", b"0", zipfile.ZIP_BZIP2)
    with pytest.raises(DataError, match="array x: found compression type 12, expected stored or deflated"):
        load_npz(tmp_path / "b.npz")


def test_a_member_that_is_shorter_than_it_says_is_refused(tmp_path: Path) -> None:
    content = _npy(_header("(2, 1)"), b"1234")
    _zip(tmp_path / "s.npz", "x.npy", content, zipfile.ZIP_DEFLATED)
    size = len(content).to_bytes(4, "little")
    longer = (len(content) + 4).to_bytes(4, "little")
    (tmp_path / "s.npz").write_bytes((tmp_path / "s.npz").read_bytes().replace(size, longer))
    with pytest.raises(DataError, match=r"s\.npz: array x: found 4 bytes, expected 8: the file is truncated"):
        load_npz(tmp_path / "s.npz")


@pytest.mark.parametrize(
    "bomb",
    [
        {"x": np.zeros((4, 5_000_000), np.uint8)},
        {"edge_index": np.zeros((2, 5_000_000), np.uint8)},
        {"edge_attr": np.zeros((1, 5_000_000), bool), "edge_index": np.array([[0], [1]])},
        {"y": np.zeros((4, 2_000_000), np.uint8)},
        {"x": np.zeros((4, 4), "V20000000")},
    ],
    ids=lambda bomb: next(iter(bomb)),
)
def test_what_a_few_bytes_would_take_by_the_gigabyte_is_refused(tmp_path: Path, bomb: dict[str, Any]) -> None:
    np.savez_compressed(tmp_path / "bomb.npz", **_arrays(**bomb))
    assert (tmp_path / "bomb.npz").stat().st_size < 400_000
    with pytest.raises(DataError, match=r"would take \S+ GiB of memory, too much for \d+ bytes; if that is meant, set"):
        load_npz(tmp_path / "bomb.npz")


def test_more_may_be_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "graph.npz"
    np.savez_compressed(path, **_arrays(edge_index=np.zeros((2, 9999), np.uint8)))
    monkeypatch.setenv("ACEGLT_READ_GIB", "1e-9")
    with pytest.raises(DataError, match="set ACEGLT_READ_GIB"):
        load_npz(path)
    monkeypatch.setenv("ACEGLT_READ_GIB", "0.1")
    assert load_npz(path).num_nodes == 4
    for wrong in ("much", "-1", "nan", "inf", "1e200", "1e300"):
        monkeypatch.setenv("ACEGLT_READ_GIB", wrong)
        with pytest.raises(ConfigError, match="ACEGLT_READ_GIB must be a number of GiB above 0 and below 1e6, found"):
            load_npz(path)


def test_a_failed_save_leaves_the_old_file(tmp_path: Path, small: GraphData, monkeypatch: pytest.MonkeyPatch) -> None:
    save_npz(tmp_path / "g.npz", small)
    before = (tmp_path / "g.npz").read_bytes()

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(archive, "_write_member", full)
    with pytest.raises(DataError, match=r"g\.npz: cannot be written \(No space left on device\)"):
        save_npz(tmp_path / "g.npz", small)
    assert (tmp_path / "g.npz").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["g.npz"]


def test_saving_into_a_missing_folder_is_reported(tmp_path: Path, small: GraphData) -> None:
    with pytest.raises(DataError, match="cannot be written"):
        save_npz(tmp_path / "none" / "g.npz", small)


def test_saved_bytes_depend_on_the_data_only(tmp_path: Path, small: GraphData) -> None:
    save_npz(tmp_path / "a.npz", small)
    save_npz(tmp_path / "b.npz", small)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def _bytes(arrays: dict[str, Any]) -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()


DENSE, SPARSE = _bytes(_arrays()), _bytes(_sparse())


def _load_bytes(content: bytes) -> None:
    """Load; only a `DataError` of one line or consistent data may come out."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "g.npz"
        path.write_bytes(content)
        message = ""
        try:
            _assert_consistent(load_npz(path))
        except DataError as error:
            message = str(error)
        assert "\n" not in message


@given(content=st.sampled_from([DENSE, SPARSE]), part=st.floats(0, 1, exclude_max=True))
@settings(max_examples=100)
def test_a_truncated_file_is_a_data_error(content: bytes, part: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "g.npz"
        path.write_bytes(content[: int(part * len(content))])
        with pytest.raises(DataError):
            load_npz(path)


@given(
    content=st.sampled_from([DENSE, SPARSE]), flips=st.lists(st.integers(0, 8 * len(DENSE) - 1), min_size=1, max_size=4)
)
@settings(max_examples=300)
def test_flipped_bits_give_a_data_error_or_a_consistent_graph(content: bytes, flips: list[int]) -> None:
    damaged = bytearray(content)
    for bit in flips:
        damaged[bit // 8] ^= 1 << bit % 8
    _load_bytes(bytes(damaged))


def test_no_flipped_bit_hides_an_array(tmp_path: Path) -> None:
    directory = DENSE.index(b"PK\x01\x02")
    (tmp_path / "g.npz").write_bytes(DENSE)
    whole = load_npz(tmp_path / "g.npz")
    for bit in range(8 * directory, 8 * len(DENSE)):
        damaged = bytearray(DENSE)
        damaged[bit // 8] ^= 1 << bit % 8
        (tmp_path / "g.npz").write_bytes(damaged)
        with contextlib.suppress(DataError):
            _assert_equal(load_npz(tmp_path / "g.npz"), whole)


@given(arrays=st.sampled_from([_arrays(), _sparse()]), data=st.data())
@settings(max_examples=300)
def test_damage_inside_an_array_that_the_checksum_cannot_see(arrays: dict[str, Any], data: st.DataObject) -> None:
    victim = data.draw(st.sampled_from(sorted(arrays)))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, array in arrays.items():
            member = io.BytesIO()
            np.lib.format.write_array(member, array)
            content = bytearray(member.getvalue())
            if name == victim:
                content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
            archive.writestr(f"{name}.npy", bytes(content))
    _load_bytes(buffer.getvalue())


def test_an_array_file_whose_header_claims_much_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "feats.npy"
    path.write_bytes(b"\x93NUMPY\x02\x00" + (1 << 29).to_bytes(4, "little") + b"{}")
    with pytest.raises(DataError, match=r"found a header of 536870912 bytes, expected at most 65536"):
        archive.read_array(path)
