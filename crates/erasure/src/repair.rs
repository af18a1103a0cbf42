//! Restores lost blocks from the remaining ones.

use crate::code::{Code, Unfit};
use crate::gf::{invert, mul};
use crate::kernel::Kernel;
use crate::span::{Output, combine};
use thiserror::Error;

/// More blocks are lost than the code can restore.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "{lost} members are lost and only {parities} parities are left: there is no way to decode them"
)]
pub struct Lost {
    /// Number of lost members.
    pub lost: usize,
    /// Number of remaining parities.
    pub parities: usize,
}

/// How wanted blocks of a set are computed from remaining ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repair {
    sources: Vec<usize>,
    /// For each wanted block, the factors of the sources.
    rows: Vec<Vec<u8>>,
}

impl Code {
    /// How to compute the `wanted` blocks from the `present` ones. Members are used before
    /// parities, and lower parities before higher ones: one lost member is the XOR of the others
    /// and P.
    ///
    /// Panics if `present` does not have an entry for each block, or if a wanted block is not in
    /// the set.
    pub fn repair(&self, present: &[bool], wanted: &[usize]) -> Result<Repair, Lost> {
        assert_eq!(present.len(), self.blocks(), "an entry for each block");
        let (members, parities) = present.split_at(self.members());
        let numbers = |flags: &[bool], value: bool| -> Vec<usize> {
            (0..flags.len()).filter(|&i| flags[i] == value).collect()
        };
        let (there, lost) = (numbers(members, true), numbers(members, false));
        let left = numbers(parities, true);
        let rows = left.get(..lost.len());
        let rows = rows.ok_or(Lost { lost: lost.len(), parities: left.len() })?;
        // With the present members: parities = A·lost + B·present, so lost = A⁻¹·(parities +
        // B·present).
        let part = |&row: &usize| lost.iter().map(|&member| self.factors(row)[member]).collect();
        let solved = invert(rows.iter().map(part).collect());
        let solved = solved.ok_or(Lost { lost: lost.len(), parities: left.len() })?;
        let member_row = |member: usize| -> Vec<u8> {
            let Some(i) = lost.iter().position(|&lost| lost == member) else {
                let own = there.iter().map(|&other| u8::from(other == member));
                return own.chain(rows.iter().map(|_| 0)).collect();
            };
            let factor = |&other: &usize| {
                let products = rows.iter().zip(&solved[i]);
                products.fold(0, |sum, (&row, &by)| sum ^ mul(by, self.factors(row)[other]))
            };
            there.iter().map(factor).chain(solved[i].iter().copied()).collect()
        };
        let block_row = |&block: &usize| -> Vec<u8> {
            let Some(parity) = block.checked_sub(self.members()) else { return member_row(block) };
            let mut sum = vec![0; self.members()];
            for (member, &by) in self.factors(parity).iter().enumerate() {
                let products = sum.iter_mut().zip(member_row(member));
                products.for_each(|(sum, factor)| *sum ^= mul(by, factor));
            }
            sum
        };
        let wanted: Vec<Vec<u8>> = wanted.iter().map(block_row).collect();
        let all = there.iter().copied().chain(rows.iter().map(|row| self.members() + row));
        // Blocks with factor 0 everywhere need not be read.
        let used = |i: usize| wanted.iter().any(|row| row[i] != 0);
        let used: Vec<(usize, usize)> = all.enumerate().filter(|&(i, _)| used(i)).collect();
        let row = |row: &Vec<u8>| used.iter().map(|&(i, _)| row[i]).collect();
        Ok(Repair {
            rows: wanted.iter().map(row).collect(),
            sources: used.iter().map(|&(_, block)| block).collect(),
        })
    }
}

impl Repair {
    /// The blocks to read, in order.
    pub fn sources(&self) -> &[usize] {
        &self.sources
    }

    /// Computes the wanted blocks, each to its own length. Bytes of a source beyond that length are
    /// ignored; a shorter source counts as padded with zeros.
    pub fn run(&self, sources: &[&[u8]], wanted: &mut [&mut [u8]]) -> Result<(), Unfit> {
        self.run_with(Kernel::best(), sources, wanted)
    }

    /// As [`Repair::run`], with a given kernel.
    pub fn run_with(
        &self,
        kernel: Kernel,
        sources: &[&[u8]],
        wanted: &mut [&mut [u8]],
    ) -> Result<(), Unfit> {
        for (expected, given) in
            [(self.sources.len(), sources.len()), (self.rows.len(), wanted.len())]
        {
            if expected != given {
                return Err(Unfit::Count { expected, given });
            }
        }
        let pairs = self.rows.iter().zip(wanted);
        let outputs = pairs.map(|(row, bytes)| Output { factors: row, bytes }).collect();
        combine(kernel, sources, outputs, false);
        Ok(())
    }
}
