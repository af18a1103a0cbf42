"""Weir, a parallel file system, for Python.

``Client`` connects to a cluster and has its names, attributes and whole files; ``File`` is an open
file with positional and vectored reads and writes. Every call releases the interpreter's lock.

>>> import weir
>>> with weir.Client() as client:            # the cluster that the command ``weir`` means, too
...     client.pipe_file("/hello", b"hello, world")
...     with client.open("/hello") as file:
...         file.pread(5, offset=7)
b'world'

With fsspec installed, ``weir://`` URLs work in pandas, pyarrow, dask, zarr and others: see
``weir.fs``.

Clients, files and file systems work after a fork: the child opens a session of its own. A client
pickles its configuration, never a session.

Errors are ``OSError`` with ``errno`` and ``filename``, and ``ValueError`` for what makes no sense.
"""

import atexit
from importlib.metadata import version
from multiprocessing import util

from weir._native import Client, Copy, File, Location, Stat, end

__all__ = ["Client", "Copy", "File", "Location", "Stat"]
__version__ = version("weir")



def _end_in_time(_: object = None) -> None:
    """A worker of multiprocessing ends by these, and not by atexit."""
    util.Finalize(None, end, exitpriority=-100)


# Writes what is left, and ends the sessions of this process.
atexit.register(end)
_end_in_time()
util.register_after_fork(Client, _end_in_time)
del atexit, version
