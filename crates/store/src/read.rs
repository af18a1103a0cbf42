//! The read path. A full block goes out with its stored checksum, unverified: the reader verifies
//! it. A reader cannot verify a block that goes out in part, so the server verifies it here.

use crate::geometry::{
    MAX_RUN_BLOCKS, Run, SLOT_BYTES, data_position, section_end, slot_area, slot_position,
};
use crate::object::{Object, read_at};
use crate::piece::{ZERO_BLOCK_CHECK, check_pieces, cuts, slot_of};
use rustix::io::Errno;
use std::cell::Cell;
use std::io::IoSliceMut;
use weir_host::plant::{Bug, planted};
use weir_types::checksum::crc32c;
use weir_types::limits::{BLOCK, BLOCK_BYTES};
use weir_types::{Error, ErrorKind, Result};

/// What a read may wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadMode {
    /// Reads from the page cache alone; never waits for the disk or a lock. The kernel begins to
    /// fetch missing pages.
    Nowait,
    /// As `Nowait`, but no missing page is fetched, so that the disk queue can order the reads.
    /// Before Linux 6.5 it is the same as `Nowait`.
    Resident,
    /// Waits for the disk. Takes no lock, unless a block that must be verified here was being
    /// written.
    Blocking,
    /// As `Blocking`, but for a large read that was not begun before (as by `Nowait`) the kernel
    /// reads nothing ahead, since the following bytes may be read from another copy.
    Exact,
    /// Excludes writers and verifies every block, so that any remaining mismatch is rot.
    Locked,
}

impl ReadMode {
    /// Whether a read in this mode waits for the disk.
    fn waits(self) -> bool {
        matches!(self, Self::Blocking | Self::Exact | Self::Locked)
    }
}

/// Result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadOutcome {
    /// The read is complete.
    Done {
        /// Bytes put into the buffer.
        bytes: usize,
        /// Length of the object, bytes, to which the pieces were clipped.
        object_bytes: u64,
    },
    /// A `Nowait` or `Resident` read would have to wait for the disk or for a writer.
    WouldBlock,
}

/// Why one attempt at a read failed.
enum Miss {
    /// Some page is not in the page cache.
    NotCached,
    /// A block did not match its checksum, or the file ended early: either damage or a concurrent
    /// write.
    Suspect(Error),
    /// The read cannot be done.
    Failed(Error),
}

/// Buffers for the bytes around those asked for. They are reused, since clearing them for each read
/// would cost as much as a small read.
struct Scratch {
    slots: [u8; BLOCK_BYTES],
    head: [u8; BLOCK_BYTES],
    tail: [u8; BLOCK_BYTES],
    block: [u8; BLOCK_BYTES],
    /// The blocks whose slots are in `slots`. Valid for the pieces of one read only.
    window: std::ops::Range<u64>,
}

/// `Exact` reads of fewer bytes use the kernel's read-ahead, whose window in Linux is this long.
const EXACT_BYTES: usize = 128 << 10;
const WILL_NEED_BYTES: u64 = 512 << 10;

thread_local! {
    static SCRATCH: Cell<Option<Box<Scratch>>> = const { Cell::new(None) };
}

impl Scratch {
    fn new() -> Box<Self> {
        Box::new(Self {
            slots: [0; BLOCK_BYTES],
            head: [0; BLOCK_BYTES],
            tail: [0; BLOCK_BYTES],
            block: [0; BLOCK_BYTES],
            window: 0..0,
        })
    }
}

impl Object {
    /// Reads pieces `(offset, length)` of the object, one after the other, into the front of `buf`.
    /// Each piece is clipped to the object's length, and the next piece follows directly. One
    /// CRC-32C is pushed to `checks` for each cut (the part of a clipped piece inside one 4 KiB
    /// block of the object), in order.
    ///
    /// The checksums of full cuts are the stored ones. In the modes that take no lock the data was
    /// not verified against them, and a writer may have been at work: a reader that sees a mismatch
    /// asks again with `Locked`.
    ///
    /// Errors: `InvalidArgument` if `buf` is too small or a piece out of range, `Corrupt` for rot,
    /// `Io`. On error nothing is pushed to `checks`.
    pub fn read_pieces(
        &self,
        pieces: &[(u64, u64)],
        buf: &mut [u8],
        checks: &mut Vec<u32>,
        mode: ReadMode,
    ) -> Result<ReadOutcome> {
        check_pieces(pieces)?;
        let before = checks.len();
        let mut attempt = |mode| {
            checks.truncate(before);
            // Moved out, not borrowed: simulated threads share the buffers of one thread.
            let mut scratch = SCRATCH.take().unwrap_or_else(Scratch::new);
            let result = self.attempt(pieces, buf, checks, mode, &mut scratch);
            SCRATCH.set(Some(scratch));
            result
        };
        let result = match mode {
            ReadMode::Nowait | ReadMode::Resident => attempt(mode),
            ReadMode::Blocking | ReadMode::Exact => match attempt(mode) {
                Err(Miss::Suspect(_)) => {
                    let _writer = self.lock_for_reading();
                    attempt(ReadMode::Locked)
                }
                other => other,
            },
            ReadMode::Locked => {
                let _writer = self.lock_for_reading();
                attempt(mode)
            }
        };
        if result.is_err() {
            checks.truncate(before);
        }
        match result {
            Ok((bytes, object_bytes)) => Ok(ReadOutcome::Done { bytes, object_bytes }),
            Err(Miss::NotCached) => Ok(ReadOutcome::WouldBlock),
            Err(Miss::Suspect(_)) if !mode.waits() => Ok(ReadOutcome::WouldBlock),
            Err(Miss::Suspect(e) | Miss::Failed(e)) => Err(e),
        }
    }

    fn attempt(
        &self,
        pieces: &[(u64, u64)],
        buf: &mut [u8],
        checks: &mut Vec<u32>,
        mode: ReadMode,
        scratch: &mut Scratch,
    ) -> Result<(usize, u64), Miss> {
        let len = self.len();
        let mut done = 0;
        scratch.window = 0..0;
        for &(offset, piece_len) in pieces {
            for run in Run::split(offset, (offset + piece_len).min(len)) {
                let room = buf.get_mut(done..done + run.len()).ok_or_else(|| {
                    let message = "the buffer is smaller than the pieces".to_string();
                    Miss::Failed(Error::new(ErrorKind::InvalidArgument, message))
                })?;
                let read = RunRead { object: self, run, len, mode };
                // After several pieces, the next one probably needs slots nearby.
                read.fetch(room, scratch, pieces.len() > 1)?;
                read.check(room, scratch, checks)?;
                done += run.len();
            }
        }
        Ok((done, len))
    }
}

/// The read of one run, which is contiguous in the object and in the file.
struct RunRead<'a> {
    object: &'a Object,
    run: Run,
    /// Length of the object, bytes.
    len: u64,
    mode: ReadMode,
}

impl RunRead<'_> {
    /// Bytes of the first block that lie before the run.
    fn head_len(&self) -> usize {
        (self.run.start % BLOCK) as usize
    }

    /// Bytes of the last block that lie after the run, up to the object's end.
    fn tail_len(&self) -> usize {
        let block_end = ((self.run.last_block() + 1) * BLOCK).min(self.len);
        (block_end - self.run.end) as usize
    }

    /// Reads the slots of all blocks, the data into `room`, and the bytes around it of the first
    /// and last block into `head` and `tail`.
    fn fetch(&self, room: &mut [u8], scratch: &mut Scratch, more: bool) -> Result<(), Miss> {
        let Scratch { slots, head, tail, window, .. } = scratch;
        let (first, last) = (self.run.first_block(), self.run.last_block());
        if window.start > first || window.end <= last {
            let available = section_end(first).min(first + MAX_RUN_BLOCKS);
            let end = if more { available.min(self.len.div_ceil(BLOCK)) } else { last + 1 };
            let slots = &mut slots[..(end - first) as usize * SLOT_BYTES];
            *window = first..end;
            self.fetch_slots(first, slots)?;
        }
        let mut buffers = [
            IoSliceMut::new(&mut head[..self.head_len()]),
            IoSliceMut::new(room),
            IoSliceMut::new(&mut tail[..self.tail_len()]),
        ];
        self.read(&mut buffers, data_position(first * BLOCK))
    }

    fn fetch_slots(&self, first: u64, slots: &mut [u8]) -> Result<(), Miss> {
        let (file, position) = (&self.object.file, slot_position(first));
        if self.mode.waits() {
            let cached = file.read_at(&mut [IoSliceMut::new(slots)], position, true);
            if cached == Ok(slots.len()) {
                return Ok(());
            }
            // The next read probably needs the adjacent slots: one seek fetches them all.
            let area = slot_area(first);
            file.will_need(area.start, area.end - area.start);
        }
        self.read(&mut [IoSliceMut::new(slots)], position)
    }

    fn read(&self, buffers: &mut [IoSliceMut<'_>], position: u64) -> Result<(), Miss> {
        let want: usize = buffers.iter().map(|b| b.len()).sum();
        let file = &self.object.file;
        if self.mode == ReadMode::Resident && !file.may_be_cached(position, want as u64) {
            return Err(Miss::NotCached);
        }
        if self.mode == ReadMode::Exact && want >= EXACT_BYTES {
            // The kernel does no read-ahead for pages that are already requested. One hint fetches
            // at most as much as one request to the device.
            let (want, step) = (want as u64, WILL_NEED_BYTES);
            let steps = (0..want).step_by(step as usize);
            steps.for_each(|at| file.will_need(position + at, step.min(want - at)));
        }
        let result = match self.mode {
            ReadMode::Nowait | ReadMode::Resident => file.read_at(buffers, position, true),
            ReadMode::Blocking | ReadMode::Exact | ReadMode::Locked => {
                read_at(file, buffers, position)
            }
        };
        match result {
            Ok(got) if got == want => Ok(()),
            Ok(_) if !self.mode.waits() => Err(Miss::NotCached),
            Ok(_) => Err(Miss::Suspect(self.object.cut_short(self.run.end))),
            Err(Errno::AGAIN | Errno::OPNOTSUPP | Errno::INTR) if !self.mode.waits() => {
                Err(Miss::NotCached)
            }
            Err(e) => {
                let doing = format!("read at offset {}", self.run.start);
                Err(Miss::Failed(self.object.os_error(doing, e)))
            }
        }
    }

    /// Pushes the checksum of each cut, and verifies the blocks that the reader cannot verify.
    fn check(&self, room: &[u8], scratch: &mut Scratch, checks: &mut Vec<u32>) -> Result<(), Miss> {
        let first = self.run.first_block();
        let skip = (first - scratch.window.start) as usize * SLOT_BYTES;
        let count = self.run.block_count();
        let slots = &scratch.slots[skip..skip + count * SLOT_BYTES];
        let slots = slots.as_chunks::<SLOT_BYTES>().0.iter().map(|s| u32::from_le_bytes(*s));
        let base = checks.len();
        checks.extend(slots.map(|slot| slot ^ ZERO_BLOCK_CHECK));
        if self.mode == ReadMode::Locked {
            let blocks = cuts(self.run.start, room).zip(&checks[base..]).enumerate();
            for (i, (cut, &check)) in blocks {
                if cut.len() == BLOCK_BYTES && crc32c(cut) != check {
                    return Err(Miss::Suspect(self.object.corrupt(first + i as u64)));
                }
            }
        }
        let to_border = BLOCK_BYTES - self.head_len();
        let tail_cut = (self.run.end % BLOCK) as usize;
        if self.head_len() > 0 || room.len() < to_border {
            let cut = &room[..to_border.min(room.len())];
            let tail_len = if count == 1 { self.tail_len() } else { 0 };
            let head = (self.head_len(), tail_len);
            checks[base] = self.check_partial(first, head, cut, scratch, checks[base])?;
        }
        if count > 1 && tail_cut > 0 {
            let cut = &room[room.len() - tail_cut..];
            let tail = (0, self.tail_len());
            let check = &mut checks[base + count - 1];
            *check = self.check_partial(self.run.last_block(), tail, cut, scratch, *check)?;
        }
        Ok(())
    }

    /// Verifies a block of which only `cut` is sent. `around` says how many bytes of `head` are
    /// before it and how many of `tail` after it. Returns the checksum of the cut.
    fn check_partial(
        &self,
        block: u64,
        around: (usize, usize),
        cut: &[u8],
        scratch: &mut Scratch,
        stored: u32,
    ) -> Result<u32, Miss> {
        let (head, rest) = scratch.block.split_at_mut(around.0);
        let (middle, rest) = rest.split_at_mut(cut.len());
        let (tail, pad) = rest.split_at_mut(around.1);
        head.copy_from_slice(&scratch.head[..around.0]);
        middle.copy_from_slice(cut);
        tail.copy_from_slice(&scratch.tail[..around.1]);
        pad.fill(0);
        let verified = slot_of(&scratch.block) ^ ZERO_BLOCK_CHECK == stored;
        if !verified && !planted(Bug::ServeUnverified) {
            return Err(Miss::Suspect(self.object.corrupt(block)));
        }
        Ok(crc32c(cut))
    }
}
