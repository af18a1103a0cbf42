"""A cluster for the tests: the one of WEIR_CLUSTER, or one of real processes that ends with them."""

import os
import subprocess
import uuid

import pytest
import weir

WEIR = os.environ.get("WEIR", "weir")


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    """The name of a cluster with four targets."""
    if named := os.environ.get("WEIR_CLUSTER"):
        yield named
        return
    # Short, because the paths of Unix sockets have to be.
    home = tmp_path_factory.mktemp("w")
    os.environ["XDG_STATE_HOME"] = str(home)
    os.environ["XDG_CONFIG_HOME"] = str(home)
    name = "python"
    address = f"127.77.{os.getpid() >> 8 & 255}.{os.getpid() & 255 or 1}"
    up = [WEIR, "up", "--name", name, "--targets", "4", "--listen", address]
    subprocess.run(up, check=True, stdout=subprocess.DEVNULL)
    try:
        yield name
    finally:
        down = [WEIR, "down", "--name", name, "--purge", "--yes"]
        subprocess.run(down, check=True, stdout=subprocess.DEVNULL)


@pytest.fixture(scope="session")
def credential(cluster):
    """The credential file of the cluster."""
    return os.path.join(os.environ["XDG_STATE_HOME"], "weir", cluster, "client.toml")


@pytest.fixture
def client(cluster):
    with weir.Client(cluster) as made:
        yield made


@pytest.fixture
def place(client):
    """A directory of a test's own."""
    path = f"/{uuid.uuid4().hex}"
    client.mkdir(path)
    return path
