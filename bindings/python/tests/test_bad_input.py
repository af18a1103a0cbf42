"""What makes no sense, or cannot be reached, is an exception that says what to do."""

import errno
import socket

import pytest
import weir


def test_numbers_that_no_file_has(client, place):
    client.pipe_file(f"{place}/f", b"abc")
    with client.open(f"{place}/f", "r+") as file:
        for call in (
            lambda: file.pread(1, -1),
            lambda: file.pread(-1, 0),
            lambda: file.pwrite(b"x", -1),
            lambda: file.pread_into(bytearray(1), -1),
            lambda: file.readv([(-1, bytearray(1))]),
            lambda: file.writev([(-1, b"x")]),
            lambda: file.truncate(-1),
            lambda: file.locations(-1),
            lambda: client.truncate(f"{place}/f", -1),
        ):
            with pytest.raises(ValueError, match="negative"):
                call()
        for call in (lambda: file.pread(1, (1 << 62) + 1), lambda: file.pwrite(b"x", (1 << 63) - 1)):
            with pytest.raises(ValueError, match="beyond the largest file"):
                call()
        with pytest.raises(OverflowError):
            file.pread(1, 1 << 64)
        assert file.pread(3, 0) == b"abc"


def test_buffers_that_cannot_be_used(client, place):
    client.pipe_file(f"{place}/f", b"abcdefgh")
    with client.open(f"{place}/f") as file:
        with pytest.raises(ValueError, match="cannot be written"):
            file.pread_into(b"1234", 0)
        with pytest.raises(ValueError, match="not contiguous"):
            file.pread_into(memoryview(bytearray(8))[::2], 0)
        with pytest.raises(TypeError):
            file.pread_into("text", 0)
        with pytest.raises(TypeError):
            client.pipe_file(f"{place}/f", "text")
        shared = memoryview(bytearray(8))
        with pytest.raises(ValueError, match="overlap"):
            file.readv([(0, shared[:5]), (3, shared[4:])])
        assert file.readv([(0, shared[:4]), (4, shared[4:]), (0, bytearray())]) == [4, 4, 0]
        assert bytes(shared) == b"abcdefgh"
        assert file.readv([]) == []


def test_what_is_closed(cluster, client, place):
    other = weir.Client(cluster)
    other.close()
    other.close()
    assert other.closed
    with pytest.raises(ValueError, match="closed"):
        other.stat("/")
    file = client.open(f"{place}/f", "w")
    file.close()
    file.close()
    with pytest.raises(ValueError, match="closed"):
        file.pwrite(b"x", 0)


def test_errors_have_number_and_name(client, place):
    with pytest.raises(FileNotFoundError) as missing:
        client.open(f"{place}/missing")
    assert missing.value.errno == errno.ENOENT
    assert missing.value.filename == f"{place}/missing"
    with pytest.raises(IsADirectoryError):
        client.open(place)
    with pytest.raises(IsADirectoryError):
        client.open(place, "w")
    with pytest.raises(FileExistsError):
        client.mkdir(place)
    client.pipe_file(f"{place}/f", b"")
    with pytest.raises(NotADirectoryError):
        client.stat(f"{place}/f/below")
    with pytest.raises(FileExistsError):
        client.open(f"{place}/f", "x")
    with pytest.raises(OSError) as full:
        client.rmdir("/")
    assert full.value.errno == errno.EBUSY
    with client.open(f"{place}/f") as file:
        for call in (lambda: file.pwrite(b"x", 0), lambda: file.truncate(0)):
            with pytest.raises(OSError, match="r\\+") as refused:
                call()
            assert (refused.value.errno, refused.value.filename) == (errno.EBADF, f"{place}/f")
    with client.open(f"{place}/f", "w") as file, pytest.raises(OSError, match="w\\+"):
        file.pread(1, 0)
    with pytest.raises(OSError):
        client.getxattr(f"{place}/f", "user.none")


def test_words_that_mean_nothing():
    for options in (
        {"consistency": "sometimes"},
        {"read_policy": "best"},
        {"timeout": 0},
        {"timeout": float("nan")},
        {"read_ahead": -1},
        {"write_behind": 1 << 40},
        {"rank": 3, "ranks": 3},
        {"cluster": "a", "credential": "b"},
    ):
        with pytest.raises(ValueError):
            weir.Client(**options)
    with pytest.raises(OSError, match="cannot be the name"):
        weir.Client("../x")


def test_modes_that_mean_nothing(client):
    for mode in ("", "q", "rw", "r++", "+"):
        with pytest.raises(ValueError, match="mode"):
            client.open("/f", mode)


def test_a_cluster_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match="weir up"):
        weir.Client("nowhere")
    with pytest.raises(FileNotFoundError, match="credential"):
        weir.Client(credential=tmp_path / "missing.toml")


def changed(credential, path, name, text):
    """A credential file with one line changed."""
    with open(credential) as file:
        lines = file.readlines()
    path.write_text("".join(f"{name} = {text}\n" if x.startswith(name) else x for x in lines))
    path.chmod(0o600)
    return path


def test_a_wrong_key(credential, tmp_path):
    wrong = changed(credential, tmp_path / "client.toml", "key", '"' + "ab" * 32 + '"')
    with pytest.raises(PermissionError, match="credential") as refused:
        weir.Client(credential=wrong)
    assert refused.value.errno == errno.EACCES
    assert "abab" not in str(refused.value)
    bad = changed(credential, tmp_path / "bad.toml", "key", '"secret"')
    with pytest.raises(OSError, match="not a client credential") as refused:
        weir.Client(credential=bad)
    assert "secret" not in str(refused.value)
    wrong.chmod(0o644)
    with pytest.raises(PermissionError, match="chmod 600"):
        weir.Client(credential=wrong)


def test_a_cluster_that_cannot_be_reached(credential, tmp_path):
    # Nobody listens at a port that is bound and no more.
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        address = '["127.0.0.1:%d"]' % held.getsockname()[1]
        away = changed(credential, tmp_path / "client.toml", "metadata", address)
        with pytest.raises(OSError, match="weir up") as refused:
            weir.Client(credential=away, timeout=5)
    assert refused.value.errno in (errno.EIO, errno.ETIMEDOUT)
