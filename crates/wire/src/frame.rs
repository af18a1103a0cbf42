//! Frames: an 80-byte header, a body, the checksums of the payload, and the payload itself, which
//! is never serialised.

use crate::message::Op;
use weir_types::codec::DecodeError;
use weir_types::limits::{MAX_BODY_BYTES, MAX_CHECKSUMS, MAX_PAYLOAD_BYTES};
use weir_types::{Encode, ErrorKind, JobId, Rank, RequestId, Sequence};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// First bytes of every frame: "WEIR".
pub const MAGIC: u32 = u32::from_le_bytes(*b"WEIR");
/// The protocol that this build speaks.
pub const VERSION: u16 = 15;
/// Bytes of the header.
pub const HEADER_BYTES: usize = 80;
/// A disk spends as much time on each request as on this many bytes. [`Header::progress`] of
/// replies leaves that time out; a prediction from it has to add it.
pub const REQUEST_COST_BYTES: u64 = 64 << 10;
/// Bytes of the header that the MAC covers (all but the MAC).
pub(crate) const MAC_OFFSET: usize = 64;
pub(crate) const SEQUENCE_OFFSET: usize = 32;
pub(crate) const PAYLOAD_LEN_OFFSET: usize = 20;

const _: () = assert!(size_of::<RawHeader>() == HEADER_BYTES);

/// Kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// A request, which gets exactly one reply.
    Request,
    /// The reply to the request with the same id.
    Reply,
}

#[repr(C)]
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
struct RawHeader {
    magic: U32,
    version: U16,
    kind: u8,
    flags: u8,
    op: U16,
    status: U16,
    body_len: U32,
    checks: U32,
    payload_len: U32,
    request_id: U64,
    sequence: U64,
    job: U64,
    rank: U32,
    progress: U32,
    in_flight: U16,
    queue_depth: U16,
    work: U32,
    mac: [u8; 16],
}

/// A checked header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Request or reply.
    pub kind: FrameKind,
    /// The operation.
    pub op: Op,
    /// In replies: `None` for success, else the kind of the [`weir_types::Error`] in the body.
    pub status: Option<ErrorKind>,
    /// Bytes of the body.
    pub body_len: u32,
    /// Number of checksums behind the body, 4 bytes each.
    pub checks: u32,
    /// Bytes of the payload behind the checksums.
    pub payload_len: u32,
    /// Matches a reply to its request.
    pub request_id: RequestId,
    /// Position among the frames of this direction of the connection.
    pub sequence: Sequence,
    /// In replies of the metadata server: what the client may cache of the reply, and the lease
    /// that came with it (the flags in [`crate::lease`]).
    pub keep: u8,
    /// In requests: the job of the caller; 0 for none. In replies of the metadata server:
    /// [`Header::events`].
    pub job: JobId,
    /// Rank of the process in the job.
    pub rank: Rank,
    /// In requests: the share of its partition that the process has done, in units of 1/2^32. In
    /// replies of data servers: time per MiB of reads on the target while it is busy, in
    /// microseconds; 0 if unknown.
    pub progress: u32,
    /// In replies: requests in progress on the target.
    pub in_flight: u16,
    /// In replies: requests that wait for the target's disk.
    pub queue_depth: u16,
    /// In requests: the whole work of the process, MiB, rounded up; 0 if the work and the progress
    /// are unknown. In replies of data servers: progress of the slowest other process of the job
    /// with first copies on the target, in units of 1/2^32; 0 if unknown.
    pub work: u32,
}

impl Header {
    /// The header of a request without load or job.
    pub fn request(op: Op, request_id: RequestId) -> Self {
        Self {
            kind: FrameKind::Request,
            op,
            status: None,
            body_len: 0,
            checks: 0,
            payload_len: 0,
            request_id,
            sequence: Sequence(0),
            keep: 0,
            job: JobId(0),
            rank: Rank(0),
            progress: 0,
            in_flight: 0,
            queue_depth: 0,
            work: 0,
        }
    }

    /// The header of the reply to a request.
    pub fn reply_to(request: &Header, status: Option<ErrorKind>) -> Self {
        Self { kind: FrameKind::Reply, status, ..Self::request(request.op, request.request_id) }
    }

    /// Sets the number of the last event of the client's session at the time of the reply, and what
    /// the client may cache of the reply.
    #[must_use]
    pub fn after_events(mut self, events: u64, keep: u8) -> Self {
        self.job = JobId(events);
        self.keep = keep;
        self
    }

    /// In replies of the metadata server: the number of the last event of the client's session at
    /// the time of the reply.
    pub fn events(&self) -> u64 {
        self.job.0
    }

    /// Bytes between the header and the payload.
    pub fn meta_len(&self) -> usize {
        self.body_len as usize + 4 * self.checks as usize
    }

    /// Decodes and checks a header. Afterwards every length is within its limit.
    pub fn parse(bytes: &[u8; HEADER_BYTES]) -> Result<Self, DecodeError> {
        let raw = RawHeader::ref_from_bytes(bytes).map_err(|_| DecodeError::Truncated)?;
        if raw.magic.get() != MAGIC || raw.version.get() != VERSION {
            return Err(DecodeError::BadValue);
        }
        let kind = match raw.kind {
            1 => FrameKind::Request,
            2 => FrameKind::Reply,
            _ => return Err(DecodeError::BadValue),
        };
        let status = match raw.status.get() {
            0 => None,
            code => Some(ErrorKind::from_code(code).ok_or(DecodeError::BadValue)?),
        };
        let keep_allowed = if kind == FrameKind::Reply { crate::lease::KEEP_ALL } else { 0 };
        if raw.flags & !keep_allowed != 0 {
            return Err(DecodeError::BadValue);
        }
        let header = Self {
            kind,
            op: Op::from_code(raw.op.get()).ok_or(DecodeError::BadValue)?,
            status,
            body_len: raw.body_len.get(),
            checks: raw.checks.get(),
            payload_len: raw.payload_len.get(),
            request_id: RequestId(raw.request_id.get()),
            sequence: Sequence(raw.sequence.get()),
            keep: raw.flags,
            job: JobId(raw.job.get()),
            rank: Rank(raw.rank.get()),
            progress: raw.progress.get(),
            in_flight: raw.in_flight.get(),
            queue_depth: raw.queue_depth.get(),
            work: raw.work.get(),
        };
        if header.body_len as usize > MAX_BODY_BYTES
            || header.checks as usize > MAX_CHECKSUMS
            || header.payload_len as usize > MAX_PAYLOAD_BYTES
        {
            return Err(DecodeError::TooLong);
        }
        Ok(header)
    }

    fn to_raw(self) -> RawHeader {
        RawHeader {
            magic: MAGIC.into(),
            version: VERSION.into(),
            kind: match self.kind {
                FrameKind::Request => 1,
                FrameKind::Reply => 2,
            },
            flags: self.keep,
            op: (self.op as u16).into(),
            status: self.status.map_or(0, |k| k as u16).into(),
            body_len: self.body_len.into(),
            checks: self.checks.into(),
            payload_len: self.payload_len.into(),
            request_id: self.request_id.0.into(),
            sequence: self.sequence.0.into(),
            job: self.job.0.into(),
            rank: self.rank.0.into(),
            progress: self.progress.into(),
            in_flight: self.in_flight.into(),
            queue_depth: self.queue_depth.into(),
            work: self.work.into(),
            mac: [0; 16],
        }
    }
}

/// The protocol version in a frame that [`Header::parse`] has refused, or `None` if it is no Weir
/// frame. With it both sides can report the two versions.
pub fn peer_version(bytes: &[u8]) -> Option<u16> {
    let magic: [u8; 4] = bytes.get(..4)?.try_into().ok()?;
    let version: [u8; 2] = bytes.get(4..6)?.try_into().ok()?;
    (u32::from_le_bytes(magic) == MAGIC).then(|| u16::from_le_bytes(version))
}

/// Appends everything of a frame but its payload: header (lengths filled in, sequence and MAC zero
/// until [`crate::Sealer::seal`] sets them), body, checksums.
pub fn encode_head(
    out: &mut Vec<u8>,
    mut header: Header,
    body: &impl Encode,
    checks: &[u32],
    payload_len: usize,
) {
    let start = out.len();
    out.resize(start + HEADER_BYTES, 0);
    body.encode(out);
    header.body_len = (out.len() - start - HEADER_BYTES) as u32;
    header.checks = checks.len() as u32;
    header.payload_len = payload_len as u32;
    for check in checks {
        out.extend_from_slice(&check.to_le_bytes());
    }
    out[start..start + HEADER_BYTES].copy_from_slice(header.to_raw().as_bytes());
}

/// Decodes checksums from the wire and appends them to a list.
pub fn decode_checks(bytes: &[u8], checks: &mut Vec<u32>) {
    checks.extend(bytes.chunks_exact(4).map(|c| u32::from_le_bytes([c[0], c[1], c[2], c[3]])));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_header_round_trips(id: u64, job: u64, rank: u32, progress: u32, work: u32, load: u16, n in 0usize..100) {
            let mut header = Header::request(Op::Read, RequestId(id));
            header.job = JobId(job);
            header.rank = Rank(rank);
            header.progress = progress;
            header.work = work;
            header.in_flight = load;
            let mut out = Vec::new();
            encode_head(&mut out, header, &vec![7u64; n], &[1, 2, 3], 4096);
            let parsed = Header::parse(out[..HEADER_BYTES].try_into().unwrap()).unwrap();
            prop_assert_eq!(parsed.meta_len(), out.len() - HEADER_BYTES);
            prop_assert_eq!(parsed.payload_len, 4096);
            prop_assert_eq!((parsed.request_id, parsed.job, parsed.rank), (header.request_id, header.job, header.rank));
            prop_assert_eq!((parsed.progress, parsed.work, parsed.in_flight), (progress, work, load));
        }

        #[test]
        fn garbage_never_panics(bytes: [u8; 32], tail: [u8; 32]) {
            let mut raw = [0u8; HEADER_BYTES];
            raw[..4].copy_from_slice(b"WEIR");
            raw[4..36].copy_from_slice(&bytes);
            raw[36..68].copy_from_slice(&tail);
            let _ = Header::parse(&raw);
        }
    }

    #[test]
    fn lengths_over_the_limits_are_refused() {
        let mut out = Vec::new();
        encode_head(&mut out, Header::request(Op::Read, RequestId(1)), &(), &[], 0);
        for offset in [12, 16, 20] {
            let mut bad: [u8; HEADER_BYTES] = out[..].try_into().unwrap();
            bad[offset..offset + 4].copy_from_slice(&u32::MAX.to_le_bytes());
            assert_eq!(Header::parse(&bad), Err(DecodeError::TooLong));
        }
    }
}
