//! State that the processes of a job which read the same files share: which processes there are,
//! and how far each lane is taken. It is stored in an extended attribute, whose contents are not
//! trusted when they are read.

use weir_policy::taking::Taken;
use weir_types::checksum::crc32c;
use weir_types::codec::{Decode, Encode};
use weir_types::limits::MAX_XATTR_BYTES;
use weir_types::{Error, ErrorKind, Result};

/// The most processes of a job.
pub const MAX_RANKS: u32 = 16_384;
/// First bytes of stored claims, ending with the version.
const MAGIC: [u8; 8] = *b"weirtak\x01";

/// The processes, with a bit for each, and the lanes. The stored length stays the same from the
/// beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claims {
    /// Number of processes.
    pub ranks: u32,
    begun: Vec<u8>,
    ended: Vec<u8>,
    taken: Vec<(u32, u32)>,
    /// Length and checksum of the plan that follows.
    pub plan: (u32, u32),
}
weir_types::codec_struct!(Claims { ranks, begun, ended, taken, plan });

/// Stage of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The process has not started.
    New,
    /// The process takes blocks.
    Begun,
    /// The process has found no more blocks.
    Ended,
}

impl Claims {
    /// Claims before any process has started.
    pub fn new(ranks: u32, lanes: usize, plan: &[u8]) -> Self {
        let none = vec![0; bytes_of(ranks)];
        let plan = (plan.len() as u32, crc32c(plan));
        Self { ranks, begun: none.clone(), ended: none, taken: vec![(0, 0); lanes], plan }
    }

    /// The stage of a process.
    pub fn stage(&self, rank: u32) -> Stage {
        match (has(&self.begun, rank), has(&self.ended, rank)) {
            (_, true) => Stage::Ended,
            (true, false) => Stage::Begun,
            (false, false) => Stage::New,
        }
    }

    /// Sets the stage of a process.
    pub fn note(&mut self, rank: u32, stage: Stage) {
        let bits = if stage == Stage::Ended { &mut self.ended } else { &mut self.begun };
        if let Some(byte) = bits.get_mut((rank / 8) as usize) {
            *byte |= 1 << (rank % 8);
        }
    }

    /// The processes that have not ended.
    pub fn not_ended(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.ranks).filter(|rank| !has(&self.ended, *rank))
    }

    /// Number of taken blocks of each lane.
    pub fn taken(&self) -> Vec<Taken> {
        self.taken.iter().map(|&(front, back)| Taken { front, back }).collect()
    }

    /// Sets the taken blocks of a lane.
    pub fn set(&mut self, lane: usize, taken: Taken) {
        if let Some(of) = self.taken.get_mut(lane) {
            *of = (taken.front, taken.back);
        }
    }

    /// Encodes the claims.
    ///
    /// # Errors
    /// `InvalidArgument`: too long for an attribute.
    pub fn to_value(&self) -> Result<Vec<u8>> {
        let body = self.to_bytes();
        let value = [&MAGIC[..], &crc32c(&body).to_bytes(), &body].concat();
        if value.len() > MAX_XATTR_BYTES {
            let what = "the files are on too many sets of disks: take fewer at a time";
            return Err(Error::new(ErrorKind::InvalidArgument, what));
        }
        Ok(value)
    }

    /// Decodes claims.
    ///
    /// # Errors
    /// `Corrupt`: the bytes are no claims.
    pub fn of_value(value: &[u8]) -> Result<Self> {
        let rest = value.strip_prefix(&MAGIC[..]);
        let read = rest.and_then(|rest| rest.split_at_checked(4)).and_then(|(check, body)| {
            let claims = Self::from_bytes(body).ok()?;
            let each = bytes_of(claims.ranks);
            let fits = claims.begun.len() == each && claims.ended.len() == each;
            let is_job = (1..=MAX_RANKS).contains(&claims.ranks);
            (crc32c(body).to_bytes() == check && fits && is_job).then_some(claims)
        });
        read.ok_or_else(|| Error::new(ErrorKind::Corrupt, "these are no claims of `weir take`"))
    }
}

fn bytes_of(ranks: u32) -> usize {
    ranks.div_ceil(8) as usize
}

fn has(bits: &[u8], rank: u32) -> bool {
    bits.get((rank / 8) as usize).is_some_and(|byte| byte >> (rank % 8) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_written_is_read_back() {
        let mut claims = Claims::new(9, 3, b"plan");
        claims.note(8, Stage::Begun);
        claims.note(8, Stage::Ended);
        claims.note(2, Stage::Begun);
        claims.set(1, Taken { front: 7, back: 2 });
        assert_eq!(Claims::of_value(&claims.to_value().unwrap()).unwrap(), claims);
        assert_eq!([1, 2, 8].map(|n| claims.stage(n)), [Stage::New, Stage::Begun, Stage::Ended]);
        assert_eq!(claims.not_ended().count(), 8);
        assert!(Claims::of_value(b"").is_err());
        assert!(Claims::new(MAX_RANKS, 7000, b"").to_value().is_ok());
        assert!(Claims::new(MAX_RANKS, 8000, b"").to_value().is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_are_taken_for_claims_that_are_not(
            ranks in 1u32..40, lanes in 0usize..9, at in any::<prop::sample::Index>(), bit in 0u8..8,
            noise in prop::collection::vec(any::<u8>(), 0..200), cut in any::<prop::sample::Index>(),
        ) {
            let good = Claims::new(ranks, lanes, &noise).to_value().unwrap();
            let mut bad = good.clone();
            bad[at.index(good.len())] ^= 1 << bit;
            prop_assert!(Claims::of_value(&bad).is_err());
            prop_assert!(Claims::of_value(&good[..cut.index(good.len())]).is_err());
            prop_assert!(Claims::of_value(&[&good[..], &[0]].concat()).is_err());
            prop_assert!(Claims::of_value(&noise).is_err());
        }
    }
}
