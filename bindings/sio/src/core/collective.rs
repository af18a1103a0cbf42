//! Collective operations: the requests of several participants go to the file as one operation.

use crate::core::codes::{Code, Failure, Result};
use crate::core::limits::MAX_COLLECTIVE_PIECES;
use crate::core::list::{Direction, Piece, Span, overlap};

/// A defined collective, and the participants that have joined its present round.
#[derive(Debug)]
pub struct Collective {
    direction: Direction,
    joined: Vec<Option<Vec<Piece>>>,
}

impl Collective {
    /// A collective that nobody has joined.
    pub fn new(direction: Direction, participants: u32) -> Self {
        Self { direction, joined: vec![None; participants as usize] }
    }

    /// The direction of the transfer.
    pub fn direction(&self) -> Direction {
        self.direction
    }

    /// Whether nobody has joined.
    pub fn is_idle(&self) -> bool {
        self.joined.iter().all(Option::is_none)
    }

    /// Joins a participant with its pieces. When the last one joins, the round is complete and
    /// returned, and the next round begins.
    ///
    /// # Errors
    /// `InvalidParticipant`; `InvalidFileList` or `InvalidMemoryList` if two participants change
    /// the same bytes, or if there are too many pieces.
    pub fn join(&mut self, participant: u32, pieces: Vec<Piece>) -> Result<Option<Round>> {
        let at = participant as usize;
        if self.joined.get(at).is_none_or(Option::is_some) {
            return Err(Failure::new(
                Code::InvalidParticipant,
                format!("participant {participant}"),
            ));
        }
        let others = self.joined.iter().flatten().flatten();
        let all = || others.clone().chain(&pieces);
        if all().count() > MAX_COLLECTIVE_PIECES {
            let what = format!("more than {MAX_COLLECTIVE_PIECES} pieces of all participants");
            return Err(Failure::new(Code::InvalidFileList, what));
        }
        let (changed, code): (fn(&Piece) -> Span, _) = match self.direction {
            Direction::Read => (|p| Span { start: p.address, len: p.len }, Code::InvalidMemoryList),
            Direction::Write => (|p| Span { start: p.offset, len: p.len }, Code::InvalidFileList),
        };
        if overlap(all().map(changed)) {
            return Err(Failure::new(code, "another participant changes the same byte"));
        }
        self.joined[at] = Some(pieces);
        if self.joined.iter().any(Option::is_none) {
            return Ok(None);
        }
        let parts = self.joined.iter_mut().map(|joined| joined.take().unwrap_or_default());
        Ok(Some(Round::new(parts.collect())))
    }

    /// Ends the present round before it has begun.
    pub fn cancel(&mut self) {
        self.joined.fill(None);
    }
}

/// The pieces of all participants, in the order of the file.
#[derive(Debug)]
pub struct Round {
    /// All pieces, by their offset.
    pub pieces: Vec<Piece>,
    /// For each piece, its participant and its index among that participant's pieces.
    owners: Vec<(usize, usize)>,
    /// Number of pieces of each participant.
    counts: Vec<usize>,
}

impl Round {
    fn new(parts: Vec<Vec<Piece>>) -> Self {
        let counts = parts.iter().map(Vec::len).collect();
        let own = |(who, part): (usize, Vec<Piece>)| {
            part.into_iter().enumerate().map(move |(nth, piece)| (piece, (who, nth)))
        };
        let mut all: Vec<_> = parts.into_iter().enumerate().flat_map(own).collect();
        all.sort_by_key(|(piece, _)| piece.offset);
        let (pieces, owners) = all.into_iter().unzip();
        Self { pieces, owners, counts }
    }

    /// The bytes that each participant got of its list, up to the first missing one, after
    /// `transferred` bytes of all pieces.
    pub fn shares(&self, transferred: u64) -> Vec<u64> {
        let mut got: Vec<Vec<(u64, u64)>> = self.counts.iter().map(|n| vec![(0, 0); *n]).collect();
        let mut left = transferred;
        for (piece, (who, nth)) in self.pieces.iter().zip(&self.owners) {
            let done = piece.len.min(left);
            left -= done;
            got[*who][*nth] = (done, piece.len);
        }
        let share = |list: &Vec<(u64, u64)>| {
            let whole = list.iter().take_while(|(done, len)| done == len);
            let (count, bytes) = whole.fold((0, 0), |(n, sum), (done, _)| (n + 1, sum + done));
            bytes + list.get(count).map_or(0, |(done, _)| *done)
        };
        got.iter().map(share).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(offset: u64, address: u64, len: u64) -> Piece {
        Piece { offset, address, len }
    }

    #[test]
    fn a_round_is_complete_with_the_last_participant_and_begins_anew() {
        let mut all = Collective::new(Direction::Read, 2);
        for _ in 0..2 {
            assert!(all.join(1, vec![piece(0, 100, 4), piece(8, 104, 4)]).unwrap().is_none());
            let again = all.join(1, vec![]).unwrap_err();
            assert_eq!(again.code, Code::InvalidParticipant);
            assert_eq!(all.join(2, vec![]).unwrap_err().code, Code::InvalidParticipant);
            let round = all.join(0, vec![piece(4, 200, 4), piece(12, 204, 4)]).unwrap().unwrap();
            let offsets: Vec<u64> = round.pieces.iter().map(|p| p.offset).collect();
            assert_eq!(offsets, [0, 4, 8, 12]);
            // The file ends in the third piece.
            assert_eq!(round.shares(10), [4, 6]);
            assert_eq!(round.shares(16), [8, 8]);
            assert_eq!(round.shares(0), [0, 0]);
            assert!(all.is_idle());
        }
    }

    #[test]
    fn participants_do_not_change_the_same_byte() {
        let mut write = Collective::new(Direction::Write, 2);
        write.join(0, vec![piece(0, 100, 4)]).unwrap();
        let failure = write.join(1, vec![piece(3, 200, 4)]).unwrap_err();
        assert_eq!(failure.code, Code::InvalidFileList);
        assert!(write.join(1, vec![piece(4, 200, 4)]).unwrap().is_some());
        let mut read = Collective::new(Direction::Read, 2);
        read.join(0, vec![piece(0, 100, 4)]).unwrap();
        let failure = read.join(1, vec![piece(0, 102, 4)]).unwrap_err();
        assert_eq!(failure.code, Code::InvalidMemoryList);
        read.cancel();
        assert!(read.is_idle());
    }
}
