"""The extension module. Use what ``weir`` exports."""

import os
from collections.abc import Sequence
from types import TracebackType
from typing import Literal, Self, TypeAlias, final

from typing_extensions import Buffer

_Path: TypeAlias = str | os.PathLike[str]
_Consistency: TypeAlias = Literal["strict", "relaxed", "none"]
_Hint: TypeAlias = Literal[
    "normal", "random", "read_once", "reverse", "records", "will_need", "done_with"
]
_ReadPolicy: TypeAlias = Literal[
    "proportional", "primary", "halves", "skip-hot", "graduated", "graduated-primary"
]

@final
class Stat:
    """Attributes of a file."""

    @property
    def type(self) -> Literal["file", "directory", "link", "other"]: ...
    @property
    def size(self) -> int: ...
    @property
    def mode(self) -> int: ...
    @property
    def uid(self) -> int: ...
    @property
    def gid(self) -> int: ...
    @property
    def nlink(self) -> int: ...
    @property
    def ino(self) -> int: ...
    @property
    def atime(self) -> float: ...
    @property
    def mtime(self) -> float: ...
    @property
    def ctime(self) -> float: ...

@final
class Copy:
    """One copy of a range, and what its disk gives now."""

    @property
    def target(self) -> int: ...
    @property
    def host(self) -> str: ...
    @property
    def address(self) -> str: ...
    @property
    def online(self) -> bool: ...
    @property
    def filling(self) -> bool: ...
    @property
    def slow(self) -> bool: ...
    @property
    def bytes_per_s(self) -> int | None: ...
    @property
    def in_flight(self) -> int: ...

@final
class Location:
    """Bytes of a file that follow each other on one disk."""

    @property
    def offset(self) -> int: ...
    @property
    def length(self) -> int: ...
    @property
    def copies(self) -> list[Copy]: ...

@final
class File:
    """An open file. Reads and writes say where: there is no position."""

    def pread(self, length: int, offset: int) -> bytes:
        """Reads up to ``length`` bytes from ``offset`` on; fewer where the file ends."""
    def pread_into(self, buffer: Buffer, offset: int) -> int:
        """Reads into a writable buffer from ``offset`` on; returns the bytes read."""
    def readv(self, ranges: Sequence[tuple[int, Buffer]], threads: int = 8) -> list[int]:
        """Reads into several buffers, each from an offset of its own; the bytes read into each.

        Small ones go out together, one request to each server; the rest is parallel.
        """
    def pwrite(self, data: Buffer, offset: int) -> int:
        """Writes all of ``data`` at ``offset``; returns its length.

        It may still be on its way then: an error comes with a later write, with ``flush``,
        ``fsync`` or ``close``.
        """
    def writev(self, ranges: Sequence[tuple[int, Buffer]]) -> int:
        """Writes several pieces, each at an offset of its own; returns the bytes written."""
    def append(self, data: Buffer) -> int:
        """Writes at the end of the file, whoever else appends; returns where that was."""
    def size(self) -> int:
        """The size in bytes, as the cluster knows it now."""
    def truncate(self, size: int) -> None:
        """Cuts or extends the file."""
    def flush(self) -> None:
        """Waits until the servers have all that was written."""
    def fsync(self) -> None:
        """Makes data and attributes durable."""
    def set_consistency(self, consistency: _Consistency) -> None:
        """How far other clients' changes are seen from now on."""
    def hint(self, name: _Hint, offset: int = 0, length: int = 0) -> None:
        """Says how this file will be read; results stay the same.

        ``will_need`` and ``done_with`` are about a range; ``length`` of ``records`` is the bytes of
        each record.
        """
    def locations(self, offset: int = 0, length: int | None = None) -> list[Location]:
        """Where the bytes are, and what each disk gives now."""
    def close(self) -> None:
        """Writes what is gathered and closes; the last to tell of a failed write."""
    @property
    def closed(self) -> bool: ...
    @property
    def path(self) -> str: ...
    @property
    def ino(self) -> int: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        type: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

@final
class Client:
    """A connection to a cluster, for any number of threads.

    Which cluster: ``cluster`` is the name of one on this machine, ``dir`` its state directory,
    ``credential`` the credential file of a client. Without any of them it is the one that the
    command ``weir`` means: by ``WEIR_CLUSTER``, ``WEIR_DIR``, ``WEIR_CREDENTIAL``, the
    configuration file, or the one named "default".

    ``job``, ``rank`` and ``ranks`` name the job whose processes are to finish together, if the
    environment (``weir run``, mpirun, srun, torchrun) does not; with ``shared`` each process reads
    its share of one file. ``connect=False`` connects when the client is first used.
    """

    def __new__(
        cls,
        cluster: str | None = None,
        *,
        credential: _Path | None = None,
        dir: _Path | None = None,
        config: _Path | None = None,
        name: str = "python",
        consistency: _Consistency = "strict",
        read_policy: _ReadPolicy = "proportional",
        read_ahead: int = 4 << 20,
        write_behind: int = 8 << 20,
        verify: bool = True,
        timeout: float = 30.0,
        job: str | None = None,
        rank: int = 0,
        ranks: int = 1,
        shared: bool = False,
        connect: bool = True,
    ) -> Self: ...
    def close(self) -> None:
        """Ends the session. Files that are open stay so until they are closed."""
    @property
    def closed(self) -> bool: ...
    @property
    def session_id(self) -> int:
        """The number of the session in the cluster: another one in each process."""
    def counters(self) -> dict[str, int]:
        """What the library has counted: requests, bytes and so on, by name."""
    def stat(self, path: _Path, *, follow: bool = True) -> Stat: ...
    def listdir(self, path: _Path) -> list[tuple[str, Stat]]:
        """Names and attributes of what is in a directory, sorted by name."""
    def walk(self, path: _Path, *, maxdepth: int | None = None) -> list[tuple[str, Stat]]:
        """Relative paths and attributes of all below a directory; links are not followed."""
    def open(
        self,
        path: _Path,
        mode: str = "r",
        *,
        permissions: int = 0o666,
        unit: int = 0,
        count: int = 0,
        copies: int = 0,
    ) -> File:
        """Opens a regular file: r, r+, w, w+, x, x+, a or a+, always binary.

        A file that is made gets the stripe unit, number of disks and copies that are given, or
        else those of its directory.
        """
    def cat_file(
        self, path: _Path, start: int | None = None, end: int | None = None, *, threads: int = 8
    ) -> bytes:
        """Reads from ``start`` to before ``end``; negative ones count from the file's end."""
    def cat_ranges(
        self, ranges: Sequence[tuple[_Path, int | None, int | None]], *, threads: int = 8
    ) -> list[bytes | Exception]:
        """Reads many ranges (path, start, end) of files at once; bytes or an exception for each."""
    def pipe_file(self, path: _Path, data: Buffer, *, exclusive: bool = False) -> None:
        """Writes a whole file; what was there is replaced, unless it must not exist."""
    def copy(self, source: _Path, target: _Path) -> None:
        """Copies a file; the servers do it among themselves."""
    def mkdir(self, path: _Path, mode: int = 0o777) -> None: ...
    def rmdir(self, path: _Path) -> None: ...
    def unlink(self, path: _Path) -> None: ...
    def rename(self, source: _Path, target: _Path, *, replace: bool = True) -> None: ...
    def symlink(self, target: _Path, path: _Path) -> None:
        """Makes a symbolic link at ``path``."""
    def readlink(self, path: _Path) -> str: ...
    def chmod(self, path: _Path, mode: int) -> None: ...
    def utime(self, path: _Path, times: tuple[float, float] | None = None) -> None:
        """Sets the times of access and change, seconds since 1970; without them: now."""
    def truncate(self, path: _Path, size: int) -> None: ...
    def getxattr(self, path: _Path, name: str) -> bytes: ...
    def setxattr(self, path: _Path, name: str, value: bytes) -> None:
        """Sets an extended attribute. Hints are such: ``user.weir.consistency`` is one."""
    def removexattr(self, path: _Path, name: str) -> None: ...
    def listxattr(self, path: _Path) -> list[str]: ...
    def statfs(self, path: _Path = "/") -> tuple[int, int]:
        """Total and free bytes for whoever writes in this place."""
    def set_layout(
        self, path: _Path, *, unit: int = 0, count: int = 0, copies: int = 0
    ) -> None:
        """The layout of what is made in a directory from now on, or of an empty file."""
    def locations(
        self, path: _Path, offset: int = 0, length: int | None = None
    ) -> list[Location]:
        """Where the bytes of a file are, range by range, and what each disk gives now."""
    def sync(self) -> None:
        """Makes all names and attributes that were changed durable."""
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        type: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

def end() -> None: ...
