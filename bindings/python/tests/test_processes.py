"""Forks and other processes: each has a session of its own."""

import os
import pickle
import re
import shutil
import subprocess
import sys

import pytest
import weir
from pools import workers
from weir._native import end

WEIR = os.environ.get("WEIR", "weir")
METHODS = ["fork", "forkserver", "spawn"]


def sizes(client, path):
    return client.session_id, client.stat(path).size, os.getpid()


@pytest.mark.parametrize("method", METHODS)
def test_a_client_that_is_handed_over_connects_in_the_child(client, place, method):
    client.pipe_file(f"{place}/f", b"abc")
    with workers(method, 2) as pool:
        got = pool.starmap(sizes, [(client, f"{place}/f")] * 8)
    assert {size for _, size, _ in got} == {3}
    sessions = {session for session, _, _ in got}
    assert client.session_id not in sessions
    assert client.stat(f"{place}/f").size == 3


def pids(cluster):
    """The processes that have a session."""
    said = subprocess.check_output([WEIR, "clients", "--name", cluster, "--json"], text=True)
    return {int(pid) for pid in re.findall(r'"pid":\s*(\d+)', said)}


def used(client, path):
    """Uses the client, which stays in this worker."""
    used.client = client
    return client.stat(path).size, os.getpid()


@pytest.mark.parametrize("method", METHODS)
def test_a_worker_that_ends_ends_its_session(client, cluster, place, method):
    client.pipe_file(f"{place}/f", b"abc")
    with workers(method, 2) as pool:
        got = pool.starmap(used, [(client, f"{place}/f")] * 8)
        theirs = {pid for _, pid in got}
        assert theirs & pids(cluster)
    assert not theirs & pids(cluster)
    assert os.getpid() in pids(cluster)


def in_child(work):
    """Runs it after a fork; what it returned, or the exception."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            try:
                result = work()
            except BaseException as error:  # noqa: BLE001
                result = error
            os.write(write, pickle.dumps(result))
            # As at the end of a program: nobody waits for this one's leases.
            end()
        finally:
            os._exit(0)
    os.close(write)
    with open(read, "rb") as pipe:
        said = pipe.read()
    os.waitpid(pid, 0)
    result = pickle.loads(said)
    if isinstance(result, BaseException):
        raise result
    return result


def test_client_and_open_files_go_on_after_a_fork_in_both(client, place):
    client.pipe_file(f"{place}/f", b"0123456789")
    with client.open(f"{place}/f", "r+") as file:
        parent = client.session_id

        def child():
            assert file.pread(4, 2) == b"2345"
            file.pwrite(b"CHILD", 0)
            file.flush()
            file.close()
            session = client.session_id
            client.close()
            return session

        assert in_child(child) != parent
        assert file.pread(10, 0) == b"CHILD56789"
        file.pwrite(b"p", 9)
        assert client.session_id == parent
    assert client.cat_file(f"{place}/f") == b"CHILD5678p"


def test_a_fork_of_a_fork_while_threads_read(client, place):
    import threading

    client.pipe_file(f"{place}/f", b"x" * 4_000_000)
    stop = threading.Event()

    def read():
        while not stop.is_set():
            client.cat_file(f"{place}/f")

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:

        def grandchild():
            return client.session_id, len(client.cat_file(f"{place}/f"))

        def child():
            return client.session_id, in_child(grandchild)

        for _ in range(4):
            own, (below, length) = in_child(child)
            assert length == 4_000_000
            assert len({client.session_id, own, below}) == 3
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_a_child_that_ends_leaves_what_its_parent_has_not_written_yet(client, place):
    file = client.open(f"{place}/f", "w")
    file.pwrite(b"parent", 0)
    in_child(lambda: None)
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    file.close()
    assert client.cat_file(f"{place}/f") == b"parent"


PROGRAM = """
import os, sys, weir
client = weir.Client(sys.argv[1])
file = client.open(sys.argv[2], "w")
file.pwrite(b"not closed", 0)
pid = os.fork()
if pid == 0:
    file.pwrite(b"N", 0)
    sys.exit(0)
os.waitpid(pid, 0)
file.pwrite(b"!", 10)
"""


def test_what_was_not_closed_is_there_when_the_program_has_ended(client, cluster, place):
    subprocess.run([sys.executable, "-c", PROGRAM, cluster, f"{place}/f"], check=True, timeout=60)
    assert client.cat_file(f"{place}/f") == b"Not closed!"


FIRST_OF_A_NAMESPACE = """
import ctypes, os, sys, weir
from weir._native import end
client = weir.Client(sys.argv[1])
parent = client.session_id
NEW_PIDS = 0x20000000
assert os.getpid() == 1 and ctypes.CDLL(None).unshare(NEW_PIDS) == 0
pid = os.fork()
if pid == 0:
    own = client.session_id
    end()
    os._exit(0 if os.getpid() == 1 and own != parent else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


def test_a_child_that_has_its_parents_number_in_another_namespace_connects_too(cluster):
    unshare = ["unshare", "--pid", "--fork"]
    if shutil.which("unshare") is None or subprocess.run([*unshare, "true"], check=False).returncode:
        pytest.skip("needs unshare --pid (root)")
    command = [*unshare, sys.executable, "-c", FIRST_OF_A_NAMESPACE, cluster]
    subprocess.run(command, check=True, timeout=60)
