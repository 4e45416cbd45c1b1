"""Arrays whose headers promise more than their files hold."""

import io
import resource
import time
import zipfile

import numpy as np
import pytest

from hypersphere.data.object_datasets import arrays_of_file
from hypersphere.errors import UserError
from hypersphere.inference.embedding_files import read_embeddings
from hypersphere.util.array_files import checked_header


def lying(shape=(10**9, 2), fortran=True):
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": fortran, "shape": shape})
    return file.getvalue() + bytes(100)


@pytest.mark.parametrize("kind", [".npy", "stored.npz", "deflated.npz"])
@pytest.mark.parametrize("fortran", [True, False])
def test_no_memory_is_taken_for_them(tmp_path, kind, fortran):
    """228 bytes took 8 GB and 34 s."""
    path = tmp_path / f"x{kind}"
    if kind == ".npy":
        path.write_bytes(lying(fortran=fortran))
    else:
        how = zipfile.ZIP_STORED if kind == "stored.npz" else zipfile.ZIP_DEFLATED
        with zipfile.ZipFile(path, "w", how) as archive:
            archive.writestr("images.npy", lying(fortran=fortran))
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    with pytest.raises(UserError, match=r"x.*np[yz] (is damaged|cannot be read)"):
        read_embeddings(path)
    with pytest.raises(UserError, match=r"x.*np[yz] cannot be read"):
        arrays_of_file(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kB
    assert time.monotonic() - began < 5


def test_whole_files_are_read(tmp_path):
    images = np.arange(4 * 8 * 8, dtype=np.uint8).reshape(4, 8, 8)
    np.save(tmp_path / "a.npy", np.asfortranarray(images))
    np.savez_compressed(tmp_path / "a.npz", images=np.zeros_like(images), odd=np.zeros(3))
    assert checked_header(tmp_path / "a.npy").shape == images.shape
    found = arrays_of_file(tmp_path / "a.npy")["images"]
    assert np.array_equal(found, images)
    assert type(found) is np.ndarray
    assert arrays_of_file(tmp_path / "a.npz")["images"].shape == images.shape
    (tmp_path / "b.npy").write_bytes(lying((-1, 2)))
    with pytest.raises(ValueError, match="promises an array of shape"):
        checked_header(tmp_path / "b.npy")
