"""What the ranks of a parallel program do to one file by MPI-IO, in three ways. They check what
they read of each other; the test, which is no MPI program, checks what is in the file.

    ranks.py views|shared|atomic FILE [HINT=VALUE...]
"""

import struct
import sys

from mpi4py import MPI

HEADER = 13  # Bytes before the first block: nothing is aligned.
BLOCK = 3001  # Bytes in a row that are one rank's.
BLOCKS = 50  # Of each rank, in one tile.
TILES = 2
RECORD = 1000  # Of those that are written where the shared pointer is.
RECORDS = 40  # Of each rank.
ATOM = 1024  # Bytes in a row that all ranks write; as many between are nobody's.
ATOMS = 64
ROUNDS = 10

world = MPI.COMM_WORLD
rank, size = world.rank, world.size


def check(is_so, what):
    if not is_so:
        raise AssertionError(f"rank {rank}: {what}")


def settle(f):
    """What was written by any rank is read by every other from here on."""
    f.Sync()
    world.Barrier()
    f.Sync()


def write(call, *at, data):
    status = MPI.Status()
    call(*at, data, status=status)
    check(status.Get_count(MPI.BYTE) == len(data), "not all of it was written")


def read(call, *at, length):
    data, status = bytearray(length), MPI.Status()
    call(*at, data, status=status)
    check(status.Get_count(MPI.BYTE) == length, "not all of it was read")
    return bytes(data)


def file_bytes(start, end, generation):
    """What is at offsets of the file; the test knows the same rule."""
    return bytes((at * 2654435761 >> 13) + 101 * generation & 255 for at in range(start, end))


def blocks_of(of, generations):
    """All blocks of one rank, one after the other."""
    def block(n):
        start = HEADER + (n * size + of) * BLOCK
        return file_bytes(start, start + BLOCK, generations[n // BLOCKS])
    return b"".join(map(block, range(TILES * BLOCKS)))


def view_of(f, of):
    """Sees of the file the blocks of one rank only: a vector, once for each tile."""
    vector = MPI.BYTE.Create_vector(BLOCKS, BLOCK, BLOCK * size)
    tile = vector.Create_resized(0, BLOCKS * BLOCK * size).Commit()
    f.Set_view(HEADER + of * BLOCK, MPI.BYTE, tile)
    tile.Free()
    vector.Free()


def views(f):
    if rank == 0:
        write(f.Write_at, 0, data=file_bytes(0, HEADER, 0))
    # All together, in parts that end within blocks.
    view_of(f, rank)
    mine = blocks_of(rank, [0, 0])
    for start in range(0, len(mine), 77777):
        write(f.Write_at_all, start, data=mine[start : start + 77777])
    settle(f)
    # Each reads what its neighbour wrote, all together.
    neighbour = (rank + 1) % size
    view_of(f, neighbour)
    theirs = read(f.Read_at_all, 0, length=len(mine))
    check(theirs == blocks_of(neighbour, [0, 0]), "a neighbour's blocks are wrong")
    world.Barrier()
    # The second tile once more, each on its own: blocks of others lie between.
    view_of(f, rank)
    second = len(mine) // TILES
    write(f.Write_at, second, data=blocks_of(rank, [0, 1])[second:])
    settle(f)
    # A part in one piece, on its own.
    f.Set_view(0, MPI.BYTE, MPI.BYTE)
    end, border = HEADER + len(mine) * size, HEADER + second * size
    part = range(HEADER + rank * len(mine), HEADER + (rank + 1) * len(mine))
    should = file_bytes(0, border, 0) + file_bytes(border, end, 1)
    got = read(f.Read_at, part.start, length=len(part))
    check(got == should[part.start : part.stop], "a part is wrong")


def record(number):
    return struct.pack("<H", number) + bytes([number % 251]) * (RECORD - 2)


def shared(f):
    for i in range(RECORDS):
        write(f.Write_shared, data=record(rank * RECORDS + i))
    world.Barrier()
    # These come in the order of ranks.
    write(f.Write_ordered, data=record(size * RECORDS + rank))
    settle(f)
    # Each record is read by one rank.
    f.Seek_shared(0)
    numbers = []
    for _ in range(RECORDS + 1):
        got = read(f.Read_shared, length=RECORD)
        numbers += struct.unpack("<H", got[:2])
        check(got == record(numbers[-1]), "a record is torn")
    everyones = sorted(sum(world.allgather(numbers), []))
    check(everyones == list(range(size * (RECORDS + 1))), f"records that were read: {everyones}")


def atomic(f):
    if rank == 0:
        write(f.Write_at, 0, data=b"\xee" * (2 * ATOMS * ATOM))
    settle(f)
    f.Set_atomicity(True)
    check(f.Get_atomicity(), "there is no atomic mode")
    vector = MPI.BYTE.Create_vector(ATOMS, ATOM, 2 * ATOM).Commit()
    f.Set_view(0, MPI.BYTE, vector)
    for i in range(ROUNDS):
        write(f.Write_at, 0, data=bytes([i * size + rank]) * (ATOMS * ATOM))
        got = read(f.Read_at, 0, length=ATOMS * ATOM)
        check(got.count(got[0]) == len(got), "what two ranks wrote is mixed")


way, name, *more = sys.argv[1:]
hints = MPI.Info.Create()
for hint in more:
    hints.Set(*hint.split("=", 1))
try:
    f = MPI.File.Open(world, name, MPI.MODE_CREATE | MPI.MODE_RDWR, hints)
    {"views": views, "shared": shared, "atomic": atomic}[way](f)
    f.Close()
except BaseException as error:
    # The other ranks would wait for this one.
    print(f"rank {rank}: {error!r}", file=sys.stderr, flush=True)
    world.Abort(3)
