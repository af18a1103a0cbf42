"""pandas, pyarrow, dask, zarr and a pool of loaders read and write through ``weir://``."""

import random

import pytest
from pools import workers

fsspec = pytest.importorskip("fsspec", "2024.10", reason="skipped: needs fsspec")
np = pytest.importorskip("numpy", reason="skipped: needs numpy")


@pytest.fixture
def options(cluster):
    return {"cluster": cluster}


def needs(name):
    return pytest.importorskip(name, reason=f"skipped: needs {name}")


def frame(pd, rows=10_000):
    return pd.DataFrame(
        {"n": range(rows), "x": np.arange(rows) / 7, "s": [f"row {i % 97}" for i in range(rows)]}
    )


def test_pandas(options, cluster, place):
    pd = needs("pandas")
    table = frame(pd)
    table.to_csv(f"weir://{place}/t.csv", index=False, storage_options=options)
    back = pd.read_csv(f"weir://{cluster}{place}/t.csv")
    pd.testing.assert_frame_equal(back, table, check_dtype=False)
    table.to_csv(f"weir://{place}/t.csv.gz", index=False, storage_options=options)
    back = pd.read_csv(f"weir://{place}/t.csv.gz", storage_options=options)
    pd.testing.assert_frame_equal(back, table, check_dtype=False)
    needs("pyarrow")
    table.to_parquet(f"weir://{cluster}{place}/t.parquet")
    back = pd.read_parquet(f"weir://{cluster}{place}/t.parquet", columns=["x"])
    pd.testing.assert_series_equal(back["x"], table["x"])


def test_pyarrow_datasets(options, place):
    pa = needs("pyarrow")
    import pyarrow.dataset as ds
    import pyarrow.parquet as pq
    from pyarrow.fs import FSSpecHandler, PyFileSystem

    files = PyFileSystem(FSSpecHandler(fsspec.filesystem("weir", **options)))
    table = pa.table({"k": [i % 4 for i in range(40_000)], "v": list(range(40_000))})
    ds.write_dataset(
        table, f"{place}/set", format="parquet", filesystem=files, partitioning=["k"]
    )
    read = ds.dataset(f"{place}/set", format="parquet", filesystem=files, partitioning=["k"])
    assert read.count_rows() == 40_000
    some = read.to_table(filter=(ds.field("k") == 3) & (ds.field("v") < 100))
    assert sorted(some["v"].to_pylist()) == list(range(3, 100, 4))
    pq.write_table(table, f"{place}/one.parquet", filesystem=files)
    pre_buffered = pq.read_table(f"{place}/one.parquet", filesystem=files, pre_buffer=True)
    assert pre_buffered.equals(table)


@pytest.mark.parametrize("scheduler", ["threads", "processes"])
def test_dask(options, place, scheduler):
    pd, _, _ = needs("pandas"), needs("pyarrow"), needs("dask")
    import dask
    import dask.bag as db
    import dask.dataframe as dd

    with dask.config.set({"scheduler": scheduler, "num_workers": 4}):
        many = dd.from_pandas(frame(pd), npartitions=8)
        many.to_parquet(f"weir://{place}/parquet", storage_options=options)
        back = dd.read_parquet(f"weir://{place}/parquet", storage_options=options)
        assert int(back["n"].sum().compute()) == sum(range(10_000))
        many.to_csv(f"weir://{place}/csv/*.csv", storage_options=options, index=False)
        back = dd.read_csv(f"weir://{place}/csv/*.csv", storage_options=options)
        assert len(back) == 10_000
        lines = db.read_text(f"weir://{place}/csv/*.csv", storage_options=options, blocksize=50_000)
        assert lines.count().compute() == 10_008


def test_zarr(options, cluster, place):
    zarr = needs("zarr")
    data = np.arange(500 * 400, dtype="f4").reshape(500, 400)
    url = f"weir://{place}/array.zarr"
    array = zarr.open_array(
        url,
        mode="w",
        shape=data.shape,
        chunks=(100, 100),
        dtype="f4",
        storage_options=options,
    )
    array[:] = data
    back = zarr.open_array(url, mode="r", storage_options=options)
    assert (back[:] == data).all()
    assert (back[120:310, 77] == data[120:310, 77]).all()
    group = zarr.open_group(f"weir://{place}/group.zarr", mode="w", storage_options=options)
    sharded = group.create_array(
        "s", shape=data.shape, chunks=(50, 50), shards=(250, 200), dtype="f4"
    )
    sharded[:] = data
    group = zarr.open_group(f"weir://{place}/group.zarr", mode="r", storage_options=options)
    assert (group["s"][60:70] == data[60:70]).all()
    assert list(group) == ["s"]


class Records:
    """A data set as a DataLoader has it: it is handed to the workers, which ask by number."""

    SIZE = 838

    def __init__(self, fs, path):
        self.fs, self.path = fs, path

    def __len__(self):
        return self.fs.size(self.path) // self.SIZE

    def __getitems__(self, numbers):
        starts = [number * self.SIZE for number in numbers]
        ends = [start + self.SIZE for start in starts]
        return self.fs.cat_ranges([self.path] * len(numbers), starts, ends, on_error="raise")


def load(records, numbers):
    batch = records.__getitems__(numbers)
    return [(number, int.from_bytes(one[:8])) for number, one in zip(numbers, batch)]


def test_a_pool_of_eight_forked_loaders(options, place):
    fs = fsspec.filesystem("weir", **options)
    count = 4_000
    fs.pipe_file(f"{place}/records", b"".join(i.to_bytes(8) * 104 + b"......" for i in range(count)))
    records = Records(fs, f"{place}/records")
    assert len(records) == count
    order = random.Random(7).sample(range(count), count)
    batches = [(records, order[at : at + 100]) for at in range(0, count, 100)]
    with workers("fork", 8) as pool:
        for _ in range(2):
            got = [pair for batch in pool.starmap(load, batches) for pair in batch]
            assert [number for number, _ in got] == order
            assert all(number == found for number, found in got)
