//! Erasure codes: how parities are computed, updated and merged.

use crate::gf::{MAX_POWER_ROWS, inverse, mul, power};
use crate::kernel::Kernel;
use crate::span::{Output, combine};
use thiserror::Error;

/// Minimum number of members of a set.
pub const MIN_MEMBERS: usize = 2;
/// Maximum number of members of a set.
pub const MAX_MEMBERS: usize = 32;
/// Maximum number of parities of a set.
pub const MAX_PARITIES: usize = 8;

/// Why a code refuses a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Unfit {
    /// There is no code with these numbers of members and parities.
    #[error(
        "a code has {MIN_MEMBERS} to {MAX_MEMBERS} members and 1 to {MAX_PARITIES} parities, not {0}+{1}"
    )]
    Shape(usize, usize),
    /// The number of blocks passed is wrong.
    #[error("{expected} blocks are needed, not {given}")]
    Count {
        /// The number that is needed.
        expected: usize,
        /// The number that was passed.
        given: usize,
    },
    /// A parity is shorter than a member.
    #[error("a parity of {parity} bytes is too short for a member of {member}")]
    Short {
        /// Bytes of the parity.
        parity: usize,
        /// Bytes of the member.
        member: usize,
    },
    /// Sets of this code cannot be merged.
    #[error("only sets of at most {MAX_POWER_ROWS} parities are merged")]
    Merge,
}

/// A code of `k` members and `m` parities. In every code, parity 0 is the XOR of the members: P of
/// RAID 5 and RAID 6. In codes of two or three parities, parity 1 is Q of RAID 6.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Code {
    members: usize,
    /// The factors of the members, for each parity.
    rows: Vec<Vec<u8>>,
}

impl Code {
    /// A Reed-Solomon code.
    pub fn new(members: usize, parities: usize) -> Result<Self, Unfit> {
        if !(MIN_MEMBERS..=MAX_MEMBERS).contains(&members)
            || !(1..=MAX_PARITIES).contains(&parities)
        {
            return Err(Unfit::Shape(members, parities));
        }
        let factor = |row, member| match parities {
            ..=MAX_POWER_ROWS => power(row * member),
            _ => cauchy(row, member),
        };
        let row = |row| (0..members).map(|member| factor(row, member)).collect();
        Ok(Self { members, rows: (0..parities).map(row).collect() })
    }

    /// RAID 5: P alone.
    pub fn raid5(members: usize) -> Result<Self, Unfit> {
        Self::new(members, 1)
    }

    /// RAID 6: P and Q.
    pub fn raid6(members: usize) -> Result<Self, Unfit> {
        Self::new(members, 2)
    }

    /// Members of a set.
    pub fn members(&self) -> usize {
        self.members
    }

    /// Parities of a set.
    pub fn parities(&self) -> usize {
        self.rows.len()
    }

    /// Members and parities.
    pub fn blocks(&self) -> usize {
        self.members + self.rows.len()
    }

    /// The factors of the members in a parity; panics if there is no such parity.
    pub fn factors(&self, parity: usize) -> &[u8] {
        &self.rows[parity]
    }

    /// Computes all parities, each at least as long as the longest member.
    pub fn encode(&self, members: &[&[u8]], parities: &mut [&mut [u8]]) -> Result<(), Unfit> {
        count(self.parities(), parities.len())?;
        self.encode_some(Kernel::best(), members, 0, parities)
    }

    /// Computes the parities from `first` on, with a given kernel: Q alone makes
    /// RAID 6 of RAID 5.
    pub fn encode_some(
        &self,
        kernel: Kernel,
        members: &[&[u8]],
        first: usize,
        parities: &mut [&mut [u8]],
    ) -> Result<(), Unfit> {
        count(self.members, members.len())?;
        let rows = self.rows.get(first..first.saturating_add(parities.len()));
        let rows = rows.ok_or(Unfit::Count { expected: self.parities(), given: first })?;
        let member = members.iter().map(|member| member.len()).max().unwrap_or(0);
        if let Some(short) = parities.iter().find(|parity| parity.len() < member) {
            return Err(Unfit::Short { parity: short.len(), member });
        }
        let pairs = rows.iter().zip(parities);
        let outputs = pairs.map(|(row, bytes)| Output { factors: row, bytes }).collect();
        combine(kernel, members, outputs, false);
        Ok(())
    }

    /// Updates the parities from `first` on after a change of one member. `change` is the XOR of
    /// the member's old and new bytes; it and the parities begin at the same offset.
    pub fn update(
        &self,
        member: usize,
        change: &[u8],
        first: usize,
        parities: &mut [&mut [u8]],
    ) -> Result<(), Unfit> {
        let rows = self.rows.get(first..first.saturating_add(parities.len()));
        let rows = rows.ok_or(Unfit::Count { expected: self.parities(), given: first })?;
        if member >= self.members {
            return Err(Unfit::Count { expected: self.members, given: member + 1 });
        }
        if let Some(short) = parities.iter().find(|parity| parity.len() < change.len()) {
            return Err(Unfit::Short { parity: short.len(), member: change.len() });
        }
        let pairs = rows.iter().zip(parities);
        let outputs =
            pairs.map(|(row, bytes)| Output { factors: &row[member..=member], bytes }).collect();
        combine(Kernel::best(), &[change], outputs, true);
        Ok(())
    }
}

/// Merges two sets of one code. `first` and `second` are parity `parity` of two sets; `first`, of
/// `members` members, becomes the parity of a set with the members of both: `P ^ P'`, `Q ^ g^k·Q'`.
/// No member is read.
pub fn merge(members: usize, parity: usize, first: &mut [u8], second: &[u8]) -> Result<(), Unfit> {
    if parity >= MAX_POWER_ROWS {
        return Err(Unfit::Merge);
    }
    if first.len() < second.len() {
        return Err(Unfit::Short { parity: first.len(), member: second.len() });
    }
    let factors = &[power(parity * members)];
    combine(Kernel::best(), &[second], vec![Output { factors, bytes: first }], true);
    Ok(())
}

fn count(expected: usize, given: usize) -> Result<(), Unfit> {
    if expected == given { Ok(()) } else { Err(Unfit::Count { expected, given }) }
}

/// `1/(x(r) + y(j))` with all `x` and `y` different, and each column scaled so that row 0 is all
/// ones. No square submatrix of such a matrix is singular.
fn cauchy(row: usize, member: usize) -> u8 {
    const { assert!(MAX_MEMBERS + MAX_PARITIES <= 256) };
    let x = |row: usize| (MAX_MEMBERS + row) as u8;
    let y = member as u8;
    mul(x(0) ^ y, inverse(x(row) ^ y))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gf::invert;

    /// All subsets of `size` numbers below `below`, in order.
    fn choices(below: usize, size: usize) -> Vec<Vec<usize>> {
        let mut all = vec![vec![]];
        for _ in 0..size {
            let longer = |chosen: &Vec<usize>| {
                let chosen = chosen.clone();
                let from = chosen.last().map_or(0, |last| last + 1);
                (from..below).map(move |next| [chosen.as_slice(), &[next]].concat())
            };
            all = all.iter().flat_map(longer).collect();
        }
        all
    }

    /// A loss can be decoded if the submatrix of the lost members and as many remaining parities is
    /// not singular. The submatrices for sets of 32 include those for smaller sets.
    #[test]
    fn every_loss_of_as_many_blocks_as_parities_is_decoded() {
        for parities in 1..=5 {
            let code = Code::new(MAX_MEMBERS, parities).unwrap();
            for size in 1..=parities {
                let rows = choices(parities, size);
                for lost in choices(MAX_MEMBERS, size) {
                    for rows in &rows {
                        let part =
                            |&row: &usize| lost.iter().map(|&j| code.factors(row)[j]).collect();
                        let part = rows.iter().map(part).collect();
                        assert!(invert(part).is_some(), "{parities}: rows {rows:?} of {lost:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn smaller_sets_have_the_rows_of_larger_ones() {
        for parities in 1..=MAX_PARITIES {
            let large = Code::new(MAX_MEMBERS, parities).unwrap();
            for members in MIN_MEMBERS..MAX_MEMBERS {
                let small = Code::new(members, parities).unwrap();
                assert!((0..parities).all(|r| small.factors(r) == &large.factors(r)[..members]));
                assert!(small.factors(0).iter().all(|&factor| factor == 1));
            }
        }
    }

    /// This is why codes with more than three parities use Cauchy rows.
    #[test]
    fn four_rows_of_powers_have_a_singular_part() {
        let part = |lost: &[usize], rows: [usize; 3]| -> Vec<Vec<u8>> {
            rows.iter().map(|r| lost.iter().map(|&j| power(r * j)).collect()).collect()
        };
        let is_singular = |lost: &Vec<usize>| {
            [[0, 1, 3], [0, 2, 3]].into_iter().any(|rows| invert(part(lost, rows)).is_none())
        };
        assert!(choices(MAX_MEMBERS, 3).iter().any(is_singular));
    }

    #[test]
    fn codes_that_do_not_exist_are_refused() {
        for (members, parities) in [(1, 2), (33, 2), (8, 0), (8, 9)] {
            assert_eq!(Code::new(members, parities), Err(Unfit::Shape(members, parities)));
        }
        let code = Code::raid6(2).unwrap();
        let (mut p, mut q) = ([0; 3], [0; 2]);
        let short = code.encode(&[b"abc", b"d"], &mut [&mut p, &mut q]);
        assert_eq!(short, Err(Unfit::Short { parity: 2, member: 3 }));
        let few = code.encode(&[b"abc"], &mut [&mut p, &mut q]);
        assert_eq!(few, Err(Unfit::Count { expected: 2, given: 1 }));
    }
}
