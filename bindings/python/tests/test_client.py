"""What a program can do with a client and its files."""

import errno
import json
import pickle
import subprocess
import sys
import threading
import time
import warnings

import pytest
import weir
from conftest import WEIR


def test_what_was_written_is_read_at_any_place(client, place):
    data = bytes(range(256)) * 4096
    with client.open(f"{place}/f", "x") as file:
        assert file.pwrite(data, 0) == len(data)
        assert file.pwrite(b"end", 2_000_000) == 3
    with client.open(f"{place}/f") as file:
        assert file.size() == 2_000_003
        assert file.pread(10, 255) == data[255:265]
        assert file.pread(100, 1_999_999) == b"\0end"
        assert file.pread(100, 3_000_000) == b""
        buffer = bytearray(len(data))
        assert file.pread_into(buffer, 0) == len(data)
        assert buffer == data


def test_buffers_of_any_kind_are_read_into_in_one_request_to_each_server(client, place):
    client.pipe_file(f"{place}/f", bytes(i % 251 for i in range(1 << 20)))
    with client.open(f"{place}/f") as file:
        file.pread(1, 0)
        before = client.counters()
        buffers = [memoryview(bytearray(200)).cast("I") for _ in range(100)]
        read = file.readv([(i * 10_000, buffer) for i, buffer in enumerate(buffers)])
        after = client.counters()
    assert read == [200] * 100
    for i, buffer in enumerate(buffers):
        assert buffer.tobytes() == bytes((i * 10_000 + k) % 251 for k in range(200))
    sent = after["data_requests"] - before["data_requests"]
    assert 1 <= sent <= 4, "four data servers"


def test_hints_change_what_is_asked_for_and_no_result(client, place):
    piece, data = 65_536, bytes(i % 253 for i in range(4 << 20))
    client.pipe_file(f"{place}/f", data)

    def backward(hint):
        with client.open(f"{place}/f") as file:
            file.hint(hint)
            before = client.counters()["data_requests"]
            for at in range(len(data) - piece, -1, -piece):
                assert file.pread(piece, at) == data[at : at + piece]
            return client.counters()["data_requests"] - before

    assert backward("reverse") * 2 <= backward("normal")
    with client.open(f"{place}/f") as file:
        before = client.counters()["ahead_fetched"]
        file.hint("will_need", 1 << 20, 1 << 20)
        assert client.counters()["ahead_fetched"] > before
        file.hint("done_with", 1 << 20, 1 << 20)
        file.hint("records", length=838)
        with pytest.raises(ValueError, match='no hint "size".*read_once'):
            file.hint("size")
        with pytest.raises(OSError, match="a record has"):
            file.hint("records")


def test_pieces_are_written_together(client, place):
    with client.open(f"{place}/f", "w+") as file:
        assert file.writev([(i * 100_000, b"%05d" % i) for i in range(300)]) == 1500
        file.writev([(5, b"x" * 3_000_000), (40_000_000, b"last"), (3, b"")])
        assert file.pread(5, 29_900_000) == b"00299"
        assert file.pread(10, 2_999_999) == b"x" * 6 + b"\0" * 4
        assert file.size() == 40_000_004


def test_pieces_are_written_in_any_order_or_none_of_them(client, place):
    with client.open(f"{place}/f", "w+") as file:
        pieces = [(i * 7_000, b"%05d" % i) for i in range(300)]
        large = [(3_000_000, b"x" * 100_000)]
        assert file.writev(pieces[:150:-1] + large + pieces[150::-1]) == 101_500
        assert [file.pread(5, offset) for offset, _ in pieces] == [data for _, data in pieces]
        for second in ((3, b"y" * 100_000), (100, b"y" * 200_000), (4, b"y")):
            with pytest.raises(OSError, match="overlap") as refused:
                file.writev([(200, b"y"), second, (0, b"yyyyy")])
            assert refused.value.errno == errno.EINVAL
        with pytest.raises(OSError) as refused:
            file.writev([(0, b"y"), (1 << 62, b"y")])
        assert refused.value.errno == errno.EFBIG
        assert file.pread(5, 0) == b"00000"


def test_a_file_that_was_not_closed_is_written_and_warned_of(client, place, monkeypatch):
    def forget(path):
        client.open(path, "w").pwrite(b"forgotten", 0)

    with pytest.warns(ResourceWarning, match=f"{place}/f"):
        forget(f"{place}/f")
    assert client.cat_file(f"{place}/f") == b"forgotten"
    shown = []
    monkeypatch.setattr(sys, "unraisablehook", lambda one: shown.append(one.exc_value))
    with warnings.catch_warnings(), pytest.raises(ZeroDivisionError):
        warnings.simplefilter("error")
        [client.open(f"{place}/g", "w"), 1 // 0]
    assert [type(one) for one in shown] == [ResourceWarning]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        client.open(f"{place}/f").close()
    assert len(shown) == 1


def test_a_read_beyond_the_end_is_short_also_among_many(client, place):
    client.pipe_file(f"{place}/f", b"0123456789")
    with client.open(f"{place}/f") as file:
        buffers = [bytearray(4) for _ in range(3)]
        assert file.readv([(0, buffers[0]), (8, buffers[1]), (100, buffers[2])]) == [4, 2, 0]
        assert buffers == [b"0123", b"89\0\0", b"\0" * 4]


def test_ranges_of_many_files_come_at_once_and_each_tells_of_itself(client, place):
    for i in range(20):
        client.pipe_file(f"{place}/{i}", bytes([i]) * 300_000)
    ranges = [(f"{place}/{i % 20}", i, i + 100) for i in range(200)]
    ranges += [(f"{place}/{i}", None, None) for i in range(20)]
    ranges += [(f"{place}/3", -5, None), (f"{place}/3", 0, -299_999), (f"{place}/3", 9, 3)]
    ranges += [(f"{place}/missing", 0, 1), (place, 0, 1)]
    got = client.cat_ranges(ranges)
    assert got[:200] == [bytes([i % 20]) * 100 for i in range(200)]
    assert got[200:220] == [bytes([i]) * 300_000 for i in range(20)]
    assert got[220:223] == [b"\3" * 5, b"\3", b""]
    assert isinstance(got[223], FileNotFoundError) and got[223].filename == f"{place}/missing"
    assert isinstance(got[224], IsADirectoryError)


def test_names_are_made_listed_changed_and_removed(client, place):
    client.mkdir(f"{place}/d")
    client.pipe_file(f"{place}/d/f", b"abc")
    client.symlink("f", f"{place}/d/link")
    assert client.readlink(f"{place}/d/link") == "f"
    assert client.stat(f"{place}/d/link").size == 3
    assert client.stat(f"{place}/d/link", follow=False).type == "link"
    assert [(name, stat.type) for name, stat in client.listdir(f"{place}/d")] == [
        ("f", "file"),
        ("link", "link"),
    ]
    assert [name for name, _ in client.walk(place)] == ["d", "d/f", "d/link"]
    assert [name for name, _ in client.walk(place, maxdepth=1)] == ["d"]
    client.chmod(f"{place}/d/f", 0o640)
    client.utime(f"{place}/d/f", (1.0, 2.5))
    stat = client.stat(f"{place}/d/f")
    assert (stat.mode & 0o777, stat.mtime) == (0o640, 2.5)
    client.truncate(f"{place}/d/f", 1)
    client.copy(f"{place}/d/f", f"{place}/d/copy")
    assert client.cat_file(f"{place}/d/copy") == b"a"
    client.setxattr(f"{place}/d/f", "user.weir.consistency", b"relaxed")
    assert client.getxattr(f"{place}/d/f", "user.weir.consistency") == b"relaxed"
    assert client.listxattr(f"{place}/d/f") == ["user.weir.consistency"]
    client.removexattr(f"{place}/d/f", "user.weir.consistency")
    client.pipe_file(f"{place}/d/g", b"g")
    with pytest.raises(FileExistsError):
        client.rename(f"{place}/d/f", f"{place}/d/g", replace=False)
    client.rename(f"{place}/d/f", f"{place}/d/g")
    assert client.cat_file(f"{place}/d/g") == b"a"
    for name in ("g", "copy", "link"):
        client.unlink(f"{place}/d/{name}")
    client.rmdir(f"{place}/d")
    assert client.listdir(place) == []
    total, free = client.statfs()
    assert 0 < free <= total


def test_locations_name_the_machine_and_the_disk_of_each_range(client, place):
    with client.open(f"{place}/f", "x", unit=65536, count=2) as file:
        file.pwrite(b"x" * 200_000, 0)
        file.flush()
        found = file.locations()
    assert [one.offset for one in found] == [0, 65536, 131072, 196608]
    assert sum(one.length for one in found) == 200_000
    first = [one.copies[0] for one in found]
    assert len({copy.target for copy in first}) == 2
    assert all(copy.host and copy.address and copy.online for copy in first)
    assert [one.offset for one in client.locations(f"{place}/f", 131072, 10)] == [131072]
    # What each disk gives now is known once it was read from.
    deadline = time.monotonic() + 60
    while not all(copy.bytes_per_s > 0 for one in found for copy in one.copies):
        assert time.monotonic() < deadline, found
        client.cat_file(f"{place}/f")
        found = client.locations(f"{place}/f")


def test_appends_of_many_threads_are_all_there(client, place):
    client.pipe_file(f"{place}/f", b"")

    def append(number):
        with client.open(f"{place}/f", "a") as file:
            for _ in range(50):
                file.append(b"%02d" % number)

    threads = [threading.Thread(target=append, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    data = client.cat_file(f"{place}/f")
    records = sorted(data[at : at + 2] for at in range(0, len(data), 2))
    assert records == sorted(b"%02d" % number for number in range(4) for _ in range(50))


def test_other_threads_run_while_one_waits_for_the_cluster(client, place):
    client.pipe_file(f"{place}/f", b"x" * (16 << 20))
    turns = 0
    done = threading.Event()

    def read():
        for _ in range(8):
            client.cat_file(f"{place}/f", threads=1)
        done.set()

    thread = threading.Thread(target=read)
    thread.start()
    while not done.is_set():
        turns += 1
    thread.join()
    assert turns > 8


def test_a_client_pickles_its_configuration_and_connects_anew(client, cluster, place):
    client.pipe_file(f"{place}/f", b"abc")
    other = pickle.loads(pickle.dumps(weir.Client(cluster, read_ahead=0, job="j", rank=1, ranks=2)))
    assert other.cat_file(f"{place}/f") == b"abc"
    assert other.session_id != client.session_id
    with client.open(f"{place}/f") as file, pytest.raises(TypeError):
        pickle.dumps(file)


def reads_of_jobs(cluster):
    """Reads of processes that said how far they are, as all data servers count them."""
    status = [WEIR, "status", "--name", cluster, "--json", "--counters"]
    told = json.loads(subprocess.run(status, check=True, capture_output=True).stdout)
    return sum(one["counters"].get("read.of_jobs", 0) for one in told["servers"].values())


def test_a_job_that_is_named_is_seen_by_the_servers(cluster, place, client):
    client.pipe_file(f"{place}/f", b"x" * 1_000_000)
    before = reads_of_jobs(cluster)
    with weir.Client(cluster, job="training", rank=1, ranks=2) as one:
        with one.open(f"{place}/f") as file:
            assert len(file.pread(1_000_000, 0)) == 1_000_000
            assert reads_of_jobs(cluster) > before


def test_a_file_outlives_its_client(cluster, place):
    client = weir.Client(cluster)
    file = client.open(f"{place}/f", "w")
    client.close()
    file.pwrite(b"late", 0)
    file.close()
    assert weir.Client(cluster).cat_file(f"{place}/f") == b"late"
