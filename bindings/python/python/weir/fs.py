"""``weir://`` for fsspec, and so for pandas, pyarrow, dask, zarr and others.

``weir://NAME/path`` is a file of the cluster NAME on this machine, ``weir:///path`` one of the
cluster that the command ``weir`` means (``WEIR_CLUSTER``, ``WEIR_CREDENTIAL`` and so on). Storage
options are the arguments of ``weir.Client``: ``{"credential": "/etc/weir/client.toml"}``.
"""

from __future__ import annotations

import errno
import io
import os
import secrets
from collections.abc import Callable
from typing import Any

from fsspec.core import has_magic
from fsspec.spec import AbstractFileSystem
from fsspec.utils import infer_storage_options, stringify_path

from weir._native import Client, File, Stat

__all__ = ["WeirFileSystem"]

# Of one call of a buffered reader or writer.
_BUFFER_BYTES = 1 << 20


def _unless_gone(remove: Callable[[str], None], path: str) -> None:
    """Removes what somebody else may have removed meanwhile."""
    try:
        remove(path)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ESTALE):
            raise


class WeirFileSystem(AbstractFileSystem):
    """The files of a Weir cluster.

    Arguments are those of ``weir.Client``, and ``auto_mkdir``: whether directories that are missing
    are made for a file that is written. It connects when it is first used. Instances pickle
    their arguments alone, and after a fork the child connects for itself. Listings are not kept:
    what others change is seen at once.
    """

    protocol = "weir"
    root_marker = "/"
    cachable = True

    def __init__(
        self, cluster: str | None = None, *, auto_mkdir: bool = True, **options: Any
    ) -> None:
        ours = {key: options.pop(key) for key in _OPTIONS & options.keys()}
        super().__init__(**options)
        self.cluster = cluster
        self.auto_mkdir = auto_mkdir
        self.client = Client(cluster, connect=False, **ours)

    # Paths

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        path = stringify_path(path)
        if path.startswith("weir://"):
            path = infer_storage_options(path)["path"]
        elif path.startswith("weir:"):
            path = path[len("weir:") :]
        return "/" + "/".join(part for part in path.split("/") if part not in ("", "."))

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, Any]:
        host = infer_storage_options(path).get("host") if "://" in path else None
        return {"cluster": host} if host else {}

    def unstrip_protocol(self, name: str) -> str:
        return f"weir://{self.cluster or ''}{self._strip_protocol(name)}"

    @property
    def fsid(self) -> str:
        return f"weir-{self.cluster or 'default'}"

    # Names and attributes

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        path = self._strip_protocol(path)
        link = self.client.stat(path, follow=False)
        return _info(path, link) if link.type != "link" else self._info_of_link(path, link)

    def _info_of_link(self, path: str, link: Stat) -> dict[str, Any]:
        try:
            info = _info(path, self.client.stat(path))
        except FileNotFoundError:
            info = _info(path, link)
        return {**info, "islink": True, "destination": self.client.readlink(path)}

    def exists(self, path: str, **kwargs: Any) -> bool:
        try:
            self.client.stat(self._strip_protocol(path))
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def lexists(self, path: str, **kwargs: Any) -> bool:
        try:
            self.client.stat(self._strip_protocol(path), follow=False)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:
        path = self._strip_protocol(path)
        try:
            found = self._listed(path, self.client.listdir(path))
        except NotADirectoryError:
            found = [self.info(path)]
        return found if detail else [one["name"] for one in found]

    def _listed(self, top: str, below: list[tuple[str, Stat]]) -> list[dict[str, Any]]:
        prefix = top.rstrip("/") + "/"
        return [
            self._info_of_link(prefix + name, stat)
            if stat.type == "link"
            else _info(prefix + name, stat)
            for name, stat in below
        ]

    def find(
        self,
        path: str,
        maxdepth: int | None = None,
        withdirs: bool = False,
        detail: bool = False,
        **kwargs: Any,
    ) -> Any:
        """All files below a path; directories are listed in parallel, with attributes."""
        if maxdepth is not None and maxdepth < 1:
            raise ValueError("maxdepth must be at least 1")
        path = self._strip_protocol(path)
        found: dict[str, dict[str, Any]] = {}
        try:
            top = self.info(path)
        except (FileNotFoundError, NotADirectoryError):
            return {} if detail else []
        if top["type"] != "directory":
            found[path] = top
        else:
            if withdirs and path != "/":
                found[path] = top
            for one in self._listed(path, self.client.walk(path, maxdepth=maxdepth)):
                if withdirs or one["type"] != "directory":
                    found[one["name"]] = one
        return found if detail else sorted(found)

    def du(
        self,
        path: str,
        total: bool = True,
        maxdepth: int | None = None,
        withdirs: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Bytes of all files below a path, or of each of them."""
        found = self.find(path, maxdepth=maxdepth, withdirs=withdirs, detail=True)
        sizes = {name: one["size"] for name, one in found.items()}
        return sum(sizes.values()) if total else sizes

    def created(self, path: str) -> Any:
        return self.modified(path)

    def modified(self, path: str) -> Any:
        import datetime

        return datetime.datetime.fromtimestamp(self.info(path)["mtime"], tz=datetime.timezone.utc)

    def mkdir(self, path: str, create_parents: bool = True, **kwargs: Any) -> None:
        path = self._strip_protocol(path)
        if self.exists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        if create_parents:
            self.makedirs(path, exist_ok=True)
        else:
            self.client.mkdir(path)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        path = self._strip_protocol(path)
        try:
            self.client.mkdir(path)
        except FileNotFoundError:
            self.makedirs(self._parent(path), exist_ok=True)
            try:
                self.client.mkdir(path)
            except FileExistsError:
                # Somebody else was faster.
                if not exist_ok:
                    raise
        except FileExistsError:
            if not exist_ok or not self.isdir(path):
                raise

    def rmdir(self, path: str) -> None:
        self.client.rmdir(self._strip_protocol(path))

    def rm_file(self, path: str) -> None:
        self.client.unlink(self._strip_protocol(path))

    _rm = rm_file

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        for one in [path] if isinstance(path, (str, os.PathLike)) else path:
            one = self._strip_protocol(one)
            if has_magic(one):
                self.rm(self.glob(one), recursive=recursive, maxdepth=maxdepth)
                continue
            if self.client.stat(one, follow=False).type != "directory":
                self.client.unlink(one)
                continue
            if not recursive:
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), one)
            for name, stat in reversed(self.client.walk(one, maxdepth=maxdepth)):
                below = f"{one.rstrip('/')}/{name}"
                if stat.type != "directory":
                    _unless_gone(self.client.unlink, below)
                elif maxdepth is None:
                    _unless_gone(self.client.rmdir, below)
            if maxdepth is None:
                _unless_gone(self.client.rmdir, one)

    rm_recursive = rm

    def mv(self, path1: Any, path2: Any, **kwargs: Any) -> None:
        """Renames in the cluster; no bytes move."""
        if isinstance(path1, list) or isinstance(path2, list) or has_magic(str(path1)):
            super().mv(path1, path2, **kwargs)
            return
        target = self._strip_protocol(path2)
        if str(path2).endswith("/") or self.isdir(target):
            target = f"{target.rstrip('/')}/{self._strip_protocol(path1).rsplit('/', 1)[-1]}"
        self._make_parent(target)
        self.client.rename(self._strip_protocol(path1), target)

    mv_file = mv

    def cp_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        """Copies in the cluster; no bytes move through this machine."""
        source, target = self._strip_protocol(path1), self._strip_protocol(path2)
        self._make_parent(target)
        if self.isdir(source):
            self.makedirs(target, exist_ok=True)
        else:
            self.client.copy(source, target)

    def touch(self, path: str, truncate: bool = True, **kwargs: Any) -> None:
        path = self._strip_protocol(path)
        if truncate or not self.exists(path):
            self.pipe_file(path, b"")
        else:
            self.client.utime(path)

    def link(self, src: str, dst: str, **kwargs: Any) -> None:
        self.client.symlink(self._strip_protocol(src), self._strip_protocol(dst))

    symlink = link

    def islink(self, path: str) -> bool:
        try:
            return self.client.stat(self._strip_protocol(path), follow=False).type == "link"
        except FileNotFoundError:
            return False

    def chmod(self, path: str, mode: int) -> None:
        self.client.chmod(self._strip_protocol(path), mode)

    # Bytes

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any
    ) -> bytes:
        return self.client.cat_file(self._strip_protocol(path), start, end)

    async def _cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any
    ) -> bytes:
        """As ``cat_file``, for event loops."""
        import asyncio

        return await asyncio.to_thread(self.cat_file, path, start, end)

    def cat_ranges(
        self,
        paths: list[str],
        starts: Any,
        ends: Any,
        max_gap: int | None = None,
        on_error: str = "return",
        **kwargs: Any,
    ) -> list[Any]:
        """Many ranges at once: small ones of a file in one request, the rest in parallel."""
        starts = starts if isinstance(starts, (list, tuple)) else [starts] * len(paths)
        ends = ends if isinstance(ends, (list, tuple)) else [ends] * len(paths)
        if not len(paths) == len(starts) == len(ends):
            raise ValueError("paths, starts and ends differ in length")
        ranges = [
            (self._strip_protocol(path), start, end)
            for path, start, end in zip(paths, starts, ends, strict=True)
        ]
        got = self.client.cat_ranges(ranges)
        if on_error != "return":
            for one in got:
                if isinstance(one, Exception):
                    raise one
        return got

    def cat(self, path: Any, recursive: bool = False, on_error: str = "raise", **kwargs: Any) -> Any:
        """The bytes of a file, or of several by their paths; those in parallel."""
        paths = self.expand_path(path, recursive=recursive, **kwargs)
        if len(paths) == 1 and isinstance(path, str) and paths[0] == self._strip_protocol(path):
            return self.cat_file(paths[0])
        paths = [one for one in paths if not (recursive and self.isdir(one))]
        got = dict(zip(paths, self.cat_ranges(paths, None, None), strict=True))
        if on_error == "raise":
            for one in got.values():
                if isinstance(one, Exception):
                    raise one
        if on_error == "omit":
            got = {name: one for name, one in got.items() if not isinstance(one, Exception)}
        return got

    def pipe_file(self, path: str, value: Any, mode: str = "overwrite", **kwargs: Any) -> None:
        path = self._strip_protocol(path)
        exclusive = mode == "create"
        try:
            self.client.pipe_file(path, value, exclusive=exclusive)
        except FileNotFoundError:
            if not self.auto_mkdir:
                raise
            self._make_parent(path)
            self.client.pipe_file(path, value, exclusive=exclusive)

    def _make_parent(self, path: str) -> None:
        if self.auto_mkdir:
            self.makedirs(self._parent(path), exist_ok=True)

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        autocommit: bool = True,
        cache_options: Any = None,
        **kwargs: Any,
    ) -> Any:
        path = self._strip_protocol(path)
        size = block_size if isinstance(block_size, int) and block_size > 1 else _BUFFER_BYTES
        temporary = None
        if not autocommit and "r" not in mode:
            temporary = f"{path}.{secrets.token_hex(8)}.part"
        raw = _Raw(self, path, mode, temporary)
        if "+" in mode:
            return _ReadWriter(raw, size)
        return _Reader(raw, size) if "r" in mode else _Writer(raw, size)

    def sign(self, path: str, expiration: int = 100, **kwargs: Any) -> str:
        raise NotImplementedError("files of Weir have no signed URLs")


_OPTIONS = frozenset(
    "credential dir config name consistency read_policy read_ahead write_behind verify timeout "
    "job rank ranks shared".split()
)


def _info(path: str, stat: Stat) -> dict[str, Any]:
    return {
        "name": path,
        "size": stat.size,
        "type": stat.type,
        "mode": stat.mode,
        "uid": stat.uid,
        "gid": stat.gid,
        "nlink": stat.nlink,
        "ino": stat.ino,
        "mtime": stat.mtime,
        "created": stat.ctime,
        "islink": False,
    }


class _Raw(io.RawIOBase):
    """An open file with a position, for the buffers of ``io``."""

    def __init__(self, fs: WeirFileSystem, path: str, mode: str, temporary: str | None) -> None:
        super().__init__()
        self.fs, self.path, self.mode, self.temporary = fs, path, mode, temporary
        opened = temporary or path
        try:
            self._file: File = fs.client.open(opened, mode)
        except FileNotFoundError:
            if "r" in mode or not fs.auto_mkdir:
                raise
            fs._make_parent(opened)
            self._file = fs.client.open(opened, mode)
        self._at = self._file.size() if "a" in mode else 0

    def readable(self) -> bool:
        return "r" in self.mode or "+" in self.mode

    def writable(self) -> bool:
        return "r" not in self.mode or "+" in self.mode

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self.readable():
            raise io.UnsupportedOperation("not open for reading")
        read = self._file.pread_into(buffer, self._at)
        self._at += read
        return read

    def write(self, data: Any) -> int:
        if not self.writable():
            raise io.UnsupportedOperation("not open for writing")
        length = memoryview(data).nbytes
        if "a" in self.mode:
            self._at = self._file.append(data) + length
        else:
            self._file.pwrite(data, self._at)
            self._at += length
        return length

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at}.get(whence)
        if base is None:
            if whence != io.SEEK_END:
                raise ValueError(f"whence={whence}: it is 0, 1 or 2")
            base = self._file.size()
        if base + offset < 0:
            raise ValueError(f"a seek to {base + offset}: before the beginning of the file")
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        return self._at

    @property
    def name(self) -> str:
        return self.path

    def truncate(self, size: int | None = None) -> int:
        size = self._at if size is None else size
        self._file.truncate(size)
        return size

    def flush(self) -> None:
        super().flush()
        if not self.closed and self.writable():
            self._file.flush()

    def close(self) -> None:
        if self.closed:
            return
        try:
            super().close()
        finally:
            self._file.close()

    def commit(self) -> None:
        if self.temporary:
            self.fs.client.rename(self.temporary, self.path)
            self.temporary = None

    def discard(self) -> None:
        if self.temporary:
            self.fs.client.unlink(self.temporary)
            self.temporary = None


class _Opened:
    """What fsspec asks of a file beyond ``io``."""

    raw: _Raw

    @property
    def fs(self) -> WeirFileSystem:
        return self.raw.fs

    @property
    def path(self) -> str:
        return self.raw.path

    full_name = path

    @property
    def size(self) -> int:
        return self.raw._file.size()

    def commit(self) -> None:
        self.raw.commit()

    def discard(self) -> None:
        self.raw.discard()


class _Reader(_Opened, io.BufferedReader):
    def __reduce__(self) -> Any:
        return _reopen, (self.fs, self.path, self.tell())


class _Writer(_Opened, io.BufferedWriter):
    pass


class _ReadWriter(_Opened, io.BufferedRandom):
    pass


def _reopen(fs: WeirFileSystem, path: str, at: int) -> Any:
    file = fs.open(path, "rb")
    file.seek(at)
    return file
