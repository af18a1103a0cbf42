//! The records of a private connection, between its socket and its frames: bytes are received as
//! records and taken as what was sealed in them.
//!
//! Invariants
//! - Nothing is taken from a record before its code was checked.
//! - A link holds at most [`RAW_BYTES`] of received bytes and one opened record. An idle one has no
//!   memory for them if its socket was found empty, and [`FIRST_BYTES`] of each at most otherwise.

use rustix::io::Errno;
use std::io::IoSliceMut;
use weir_host::net::Socket;
use weir_types::Error;
use weir_wire::private::{MAX_SEALED_BYTES, Records};

/// The most bytes that are received before they are opened.
const RAW_BYTES: usize = 64 << 10;

/// Memory for the first bytes after everything was taken: most requests and replies are shorter.
const FIRST_BYTES: usize = 4 << 10;

const _: () = assert!(RAW_BYTES >= 2 * MAX_SEALED_BYTES);

/// Why nothing was received.
#[derive(Debug)]
pub(crate) enum LinkError {
    /// The socket has nothing, or is lost.
    Socket(Errno),
    /// What came is not what the peer sealed.
    Broken(Error),
}

/// Both directions of a private connection.
#[derive(Debug)]
pub(crate) struct Link {
    records: Records,
    /// Received records: `raw[start..end]` is not opened yet.
    raw: Vec<u8>,
    start: usize,
    end: usize,
    /// The bytes of an opened record: those from `taken` on were not taken yet.
    plain: Vec<u8>,
    taken: usize,
}

impl Link {
    /// A link whose first records have arrived already, as far as `early` goes.
    pub(crate) fn new(records: Records, early: &[u8]) -> Self {
        let (raw, end) = (early.to_vec(), early.len());
        Self { records, raw, start: 0, end, plain: Vec::new(), taken: 0 }
    }

    /// Appends records of slices to `out`: see [`Records::seal`].
    pub(crate) fn seal<'a>(
        &mut self,
        slices: impl Iterator<Item = &'a [u8]>,
        limit: usize,
        out: &mut Vec<u8>,
    ) -> Result<usize, Error> {
        self.records.seal(slices, limit, out)
    }

    /// Whether there are bytes to take, or an error to report, without receiving any.
    pub(crate) fn has_some(&self) -> bool {
        let next = Records::next(&self.raw[self.start..self.end]);
        self.taken < self.plain.len() || !matches!(next, Ok(None))
    }

    /// Whether everything received was taken.
    pub(crate) fn is_empty(&self) -> bool {
        self.taken == self.plain.len() && self.start == self.end
    }

    /// Receives at least one byte, with at most one successful call of the socket that brings a
    /// whole record; returns 0 at the end of the stream. A record that is cut off there is lost.
    pub(crate) fn receive(
        &mut self,
        socket: &Socket,
        into: &mut [IoSliceMut<'_>],
        may_block: bool,
    ) -> Result<usize, LinkError> {
        loop {
            let taken = self.take(into).map_err(LinkError::Broken)?;
            if self.is_empty() {
                self.keep_at_most(FIRST_BYTES);
            }
            if taken > 0 || into.iter().all(|part| part.is_empty()) {
                return Ok(taken);
            }
            self.make_room();
            let mut room = [IoSliceMut::new(&mut self.raw[self.end..])];
            match socket.receive(&mut room, may_block) {
                Ok(0) => return Ok(0),
                Ok(n) => self.end += n,
                Err(error) => {
                    if self.is_empty() {
                        self.keep_at_most(0);
                    }
                    return Err(LinkError::Socket(error));
                }
            }
        }
    }

    /// Opens records into the buffers, as many as there are and fit.
    fn take(&mut self, into: &mut [IoSliceMut<'_>]) -> Result<usize, Error> {
        let mut all = 0;
        for part in into {
            let mut at = 0;
            while at < part.len() {
                let room = &mut part[at..];
                if self.taken < self.plain.len() {
                    let n = room.len().min(self.plain.len() - self.taken);
                    room[..n].copy_from_slice(&self.plain[self.taken..self.taken + n]);
                    self.taken += n;
                    at += n;
                    all += n;
                    continue;
                }
                let bytes = &self.raw[self.start..self.end];
                let Some((len, inside)) = Records::next(bytes)? else { return Ok(all) };
                if room.len() >= inside {
                    self.records.open(&bytes[..len], &mut room[..inside])?;
                    at += inside;
                    all += inside;
                } else {
                    self.plain.resize(inside, 0);
                    self.taken = inside;
                    self.records.open(&bytes[..len], &mut self.plain)?;
                    self.taken = 0;
                }
                self.start += len;
            }
        }
        Ok(all)
    }

    /// Makes room for the rest of a record and more.
    fn make_room(&mut self) {
        self.raw.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        let bytes = match self.end {
            0 => FIRST_BYTES,
            some => RAW_BYTES.max(some + MAX_SEALED_BYTES),
        };
        if self.raw.len() < bytes {
            self.raw.resize(bytes, 0);
        }
    }

    /// Frees larger memory. Everything was taken.
    fn keep_at_most(&mut self, bytes: usize) {
        for memory in [&mut self.raw, &mut self.plain] {
            if memory.capacity() > bytes {
                *memory = Vec::new();
            }
        }
        self.plain.clear();
        (self.start, self.end, self.taken) = (0, 0, 0);
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // Tests ask the operating system.
mod tests {
    use super::*;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use weir_types::ErrorKind;
    use weir_wire::Key;
    use weir_wire::private::{Initiator, respond};

    fn pair() -> (Link, Link) {
        let psk = Key::from_bytes([1; 32]);
        let (initiator, message) = Initiator::begin(&psk, [2; 32]).unwrap();
        let (records, answer) = respond(&psk, [3; 32], &message).unwrap();
        (Link::new(initiator.finish(&answer).unwrap(), &[]), Link::new(records, &[]))
    }

    fn sealed(link: &mut Link, plain: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        link.seal([plain].into_iter(), usize::MAX, &mut out).unwrap();
        out
    }

    #[test]
    fn bytes_come_whole_into_buffers_of_any_size_however_the_records_arrive() {
        let (mut from, mut to) = pair();
        let plain: Vec<u8> = (0..300_000u32).map(|i| (i % 251) as u8).collect();
        let bytes = sealed(&mut from, &plain);
        let (mut near, far) = UnixStream::pair().unwrap();
        let socket = Socket::from(OwnedFd::from(far));
        let sender = std::thread::spawn(move || {
            for piece in bytes.chunks(7_001) {
                std::io::Write::write_all(&mut near, piece).unwrap();
            }
        });
        let (mut got, mut sizes) =
            (Vec::<u8>::new(), [1, 40_000, 100, 16_384, 5].into_iter().cycle());
        while got.len() < plain.len() {
            let (mut a, mut b) = (vec![0; sizes.next().unwrap()], vec![0; sizes.next().unwrap()]);
            let mut into = [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b)];
            let n = to.receive(&socket, &mut into, true).unwrap();
            assert!(n > 0);
            got.extend(a.iter().chain(&b).take(n));
        }
        assert!(got == plain && to.is_empty());
        assert!(to.raw.capacity() <= FIRST_BYTES && to.plain.capacity() <= FIRST_BYTES);
        sender.join().unwrap();
        assert_eq!(to.receive(&socket, &mut [IoSliceMut::new(&mut [0])], true).unwrap(), 0);
    }

    #[test]
    fn what_nobody_sealed_is_never_taken_and_an_idle_link_holds_nothing() {
        let (mut from, mut to) = pair();
        let (mut near, far) = UnixStream::pair().unwrap();
        let socket = Socket::from(OwnedFd::from(far));
        let mut into = [0; 100];
        let mut receive =
            |to: &mut Link| to.receive(&socket, &mut [IoSliceMut::new(&mut into)], false);
        let mut bytes = sealed(&mut from, b"good");
        bytes.extend(sealed(&mut from, b"bad"));
        *bytes.last_mut().unwrap() ^= 1;
        std::io::Write::write_all(&mut near, &bytes[..10]).unwrap();
        assert!(matches!(receive(&mut to), Err(LinkError::Socket(Errno::AGAIN))));
        assert!(!to.has_some() && !to.is_empty());
        std::io::Write::write_all(&mut near, &bytes[10..22]).unwrap();
        assert_eq!(receive(&mut to).unwrap(), 4);
        assert!(matches!(receive(&mut to), Err(LinkError::Socket(Errno::AGAIN))));
        assert_eq!((to.raw.capacity(), to.plain.capacity()), (0, 0));
        std::io::Write::write_all(&mut near, &bytes[22..]).unwrap();
        let Err(LinkError::Broken(error)) = receive(&mut to) else { panic!("it was changed") };
        assert_eq!(error.kind, ErrorKind::Protocol);
    }
}
