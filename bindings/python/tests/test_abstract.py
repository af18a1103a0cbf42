"""What fsspec asks of any file system."""

import uuid

import pytest

fsspec = pytest.importorskip("fsspec", "2024.10", reason="skipped: needs fsspec")
import fsspec.tests.abstract as abstract  # noqa: E402
from fsspec.implementations.local import LocalFileSystem, make_path_posix  # noqa: E402


class WeirFixtures(abstract.AbstractFixtures):
    @pytest.fixture(scope="class")
    def fs(self, cluster):
        return fsspec.filesystem("weir", cluster=cluster)

    @pytest.fixture
    def fs_path(self, fs):
        path = f"/abstract-{uuid.uuid4().hex}"
        fs.mkdir(path)
        yield path
        fs.rm(path, recursive=True)


class TestCopy(abstract.AbstractCopyTests, WeirFixtures):
    pass


class TestGet(abstract.AbstractGetTests, WeirFixtures):
    pass


class TestPut(abstract.AbstractPutTests, WeirFixtures):
    pass


class TestOpen(abstract.AbstractOpenTests, WeirFixtures):
    pass


class TestPipe(abstract.AbstractPipeTests, WeirFixtures):
    pass


class LocalFixtures(abstract.AbstractFixtures):
    """The same for local files: what the tests themselves ask."""

    @pytest.fixture(scope="class")
    def fs(self):
        return LocalFileSystem(auto_mkdir=True)

    @pytest.fixture
    def fs_path(self, tmpdir):
        return make_path_posix(str(tmpdir))


class TestLocalCopy(abstract.AbstractCopyTests, LocalFixtures):
    pass


class TestLocalGet(abstract.AbstractGetTests, LocalFixtures):
    pass


class TestLocalPut(abstract.AbstractPutTests, LocalFixtures):
    pass


class TestLocalOpen(abstract.AbstractOpenTests, LocalFixtures):
    pass


class TestLocalPipe(abstract.AbstractPipeTests, LocalFixtures):
    pass
