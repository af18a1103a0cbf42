//! What the processes of a job that read the same files tell each other: which of them there are,
//! and how far each lane is taken. It is written down in an attribute; nobody vouches for what is
//! read back.

use weir_policy::taking::Taken;
use weir_types::checksum::crc32c;
use weir_types::codec::{Decode, Encode};
use weir_types::limits::MAX_XATTR_BYTES;
use weir_types::{Error, ErrorKind, Result};

/// The most processes of a job.
pub const MAX_RANKS: u32 = 16_384;
/// What claims begin with, their version last.
const MAGIC: [u8; 8] = *b"weirtak\x01";

/// The processes, a bit for each, and the lanes. Its length is the same from the beginning on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claims {
    /// How many processes there are.
    pub ranks: u32,
    begun: Vec<u8>,
    ended: Vec<u8>,
    taken: Vec<(u32, u32)>,
    /// Of the plan that stands behind: its length and checksum.
    pub plan: (u32, u32),
}
weir_types::codec_struct!(Claims { ranks, begun, ended, taken, plan });

/// Where a process stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It has not come yet.
    New,
    /// It takes.
    Begun,
    /// It has found that there is no more.
    Ended,
}

impl Claims {
    /// Nobody has come yet.
    pub fn new(ranks: u32, lanes: usize, plan: &[u8]) -> Self {
        let none = vec![0; bytes_of(ranks)];
        let plan = (plan.len() as u32, crc32c(plan));
        Self { ranks, begun: none.clone(), ended: none, taken: vec![(0, 0); lanes], plan }
    }

    /// Of a process.
    pub fn stage(&self, rank: u32) -> Stage {
        match (has(&self.begun, rank), has(&self.ended, rank)) {
            (_, true) => Stage::Ended,
            (true, false) => Stage::Begun,
            (false, false) => Stage::New,
        }
    }

    /// A process has come, or has found that there is no more.
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

    /// How far each lane is taken.
    pub fn taken(&self) -> Vec<Taken> {
        self.taken.iter().map(|&(front, back)| Taken { front, back }).collect()
    }

    /// A lane is taken so far.
    pub fn set(&mut self, lane: usize, taken: Taken) {
        if let Some(of) = self.taken.get_mut(lane) {
            *of = (taken.front, taken.back);
        }
    }

    /// As it is written.
    ///
    /// # Errors
    /// `InvalidArgument`: it is too long.
    pub fn to_value(&self) -> Result<Vec<u8>> {
        let body = self.to_bytes();
        let value = [&MAGIC[..], &crc32c(&body).to_bytes(), &body].concat();
        if value.len() > MAX_XATTR_BYTES {
            let what = "the files are on too many sets of disks: take fewer at a time";
            return Err(Error::new(ErrorKind::InvalidArgument, what));
        }
        Ok(value)
    }

    /// Reads what has been written.
    ///
    /// # Errors
    /// `Corrupt`: it is something else.
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
