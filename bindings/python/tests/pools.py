"""Pools whose workers end by themselves, and their sessions with them."""

import contextlib
import multiprocessing


@contextlib.contextmanager
def workers(method, count):
    """A pool; as a context itself it would kill its workers."""
    pool = multiprocessing.get_context(method).Pool(count)
    try:
        yield pool
        pool.close()
    except BaseException:
        pool.terminate()
        raise
    finally:
        pool.join()
