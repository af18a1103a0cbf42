"""The file system of fsspec."""

import asyncio
import io
import pickle

import pytest
from pools import workers

fsspec = pytest.importorskip("fsspec", "2024.10", reason="skipped: needs fsspec")

from weir.fs import WeirFileSystem  # noqa: E402


@pytest.fixture
def fs(cluster):
    return fsspec.filesystem("weir", cluster=cluster)


def test_urls_name_cluster_and_path(cluster, place, fs):
    with fsspec.open(f"weir://{cluster}{place}/f", "wb") as file:
        file.write(b"abc")
    opened, path = fsspec.url_to_fs(f"weir://{cluster}{place}/f")
    assert isinstance(opened, WeirFileSystem) and path == f"{place}/f"
    assert opened.cluster == cluster
    assert fs.unstrip_protocol(path) == f"weir://{cluster}{place}/f"
    assert fs.cat(f"weir://{cluster}{place}/f") == b"abc"
    assert WeirFileSystem._strip_protocol("weir:///a//b/./c/") == "/a/b/c"
    assert WeirFileSystem._strip_protocol("a") == "/a"


def test_find_and_du_take_whole_trees_with_attributes(fs, place):
    for path in ("a", "d/b", "d/e/c"):
        fs.pipe_file(f"{place}/{path}", b"x" * len(path))
    names = [f"{place}/a", f"{place}/d/b", f"{place}/d/e/c"]
    assert fs.find(place) == names
    found = fs.find(place, detail=True)
    assert {name: one["size"] for name, one in found.items()} == dict(zip(names, (1, 3, 5)))
    assert f"{place}/d/e" in fs.find(place, withdirs=True)
    assert fs.find(place, maxdepth=2) == names[:2]
    assert fs.find(names[0]) == [names[0]]
    assert asyncio.run(fs._cat_file(names[2], 1, 4)) == b"xxx"
    assert fs.find(f"{place}/missing") == []
    assert fs.du(place) == 9
    assert fs.du(place, total=False) == dict(zip(names, (1, 3, 5)))
    assert fs.glob(f"{place}/**/c") == [names[2]]
    assert [top for top, _, _ in fs.walk(place)] == [place, f"{place}/d", f"{place}/d/e"]


def test_files_are_streams(fs, place):
    with fs.open(f"{place}/f", "wb") as file:
        for i in range(1000):
            file.write(b"%06d\n" % i)
    with fs.open(f"{place}/f", "rb") as file:
        assert file.readline() == b"000000\n"
        assert file.seek(-7, io.SEEK_END) == 6993
        assert file.read() == b"000999\n"
        file.seek(10)
        copy = pickle.loads(pickle.dumps(file))
        assert copy.tell() == 10 and copy.readline() == b"001\n"
    with fs.open(f"{place}/f", "ab") as file:
        file.write(b"more")
    with fs.open(f"{place}/f", "r+b") as file:
        file.write(b"AB")
        file.seek(0)
        assert file.read(4) == b"AB00"
        file.truncate(7004)
    with fs.open(f"{place}/f", "r") as file:
        assert file.read().endswith("000999\nmore")
    assert fs.size(f"{place}/f") == 7004
    assert fs.head(f"{place}/f", 2) == b"AB" and fs.tail(f"{place}/f", 4) == b"more"
    assert fs.read_block(f"{place}/f", 1, 10, b"\n") == b"000001\n"
    with pytest.raises(FileExistsError):
        fs.open(f"{place}/f", "xb")
    with pytest.raises(FileNotFoundError):
        fs.open(f"{place}/none", "rb")


def test_a_transaction_is_seen_when_it_ends(fs, place):
    with fs.transaction:
        with fs.open(f"{place}/f", "wb") as file:
            file.write(b"abc")
        assert not fs.exists(f"{place}/f")
    assert fs.cat(f"{place}/f") == b"abc"
    with pytest.raises(RuntimeError), fs.transaction:
        with fs.open(f"{place}/g", "wb") as file:
            file.write(b"abc")
        raise RuntimeError
    assert fs.find(place) == [f"{place}/f"]


def test_names_are_moved_copied_and_removed(fs, place):
    fs.pipe({f"{place}/d/{i}": b"%d" % i for i in range(10)})
    fs.mv(f"{place}/d", f"{place}/e")
    assert fs.cat(f"{place}/e", recursive=True) == {f"{place}/e/{i}": b"%d" % i for i in range(10)}
    fs.copy(f"{place}/e", f"{place}/f", recursive=True)
    assert fs.cat_file(f"{place}/f/7") == b"7"
    fs.touch(f"{place}/new/file")
    assert fs.isfile(f"{place}/new/file") and fs.isdir(f"{place}/new")
    fs.rm(f"{place}/f/*")
    assert fs.ls(f"{place}/f") == []
    with pytest.raises(IsADirectoryError):
        fs.rm(f"{place}/e")
    fs.rm(place, recursive=True)
    assert not fs.exists(place)


def test_a_move_that_cannot_be_leaves_the_file(cluster, place):
    fs = fsspec.filesystem("weir", cluster=cluster, auto_mkdir=False)
    fs.pipe_file(f"{place}/f", b"abc")
    with pytest.raises(FileNotFoundError):
        fs.mv(f"{place}/f", f"{place}/none/f")
    with pytest.raises(FileNotFoundError):
        fs.mv(f"{place}/none", f"{place}/g")
    with pytest.raises(FileNotFoundError):
        fs.pipe_file(f"{place}/none/f", b"")
    with pytest.raises(FileNotFoundError):
        fs.open(f"{place}/none/f", "wb")
    fs.mkdir(f"{place}/d")
    fs.mv(f"{place}/f", f"{place}/d")
    assert fs.cat(f"{place}/d/f") == b"abc"


def test_ranges_that_fail_are_told(fs, place):
    fs.pipe_file(f"{place}/f", b"0123456789")
    paths = [f"{place}/f", f"{place}/f", f"{place}/none"]
    got = fs.cat_ranges(paths, [0, -3, 0], [2, None, 1])
    assert got[:2] == [b"01", b"789"] and isinstance(got[2], FileNotFoundError)
    with pytest.raises(FileNotFoundError):
        fs.cat_ranges(paths, 0, 1, on_error="raise")
    with pytest.raises(ValueError):
        fs.cat_ranges(paths, [0], [1])


def read_some(work):
    fs, path, start = work
    return fs.client.session_id, fs.cat_file(path, start, start + 1000)


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_eight_workers_read_with_what_the_parent_has_used(fs, place, method):
    data = bytes(i % 253 for i in range(400_000))
    fs.pipe_file(f"{place}/f", data)
    works = [(fs, f"{place}/f", start) for start in range(0, 400_000, 1000)]
    with workers(method, 8) as pool:
        got = pool.map(read_some, works, chunksize=10)
    assert b"".join(part for _, part in got) == data
    assert fs.client.session_id not in {session for session, _ in got}
    assert fs.cat_file(f"{place}/f") == data
