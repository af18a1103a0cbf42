//! Duplication of writes: the window in which an acknowledged write exists on one disk only.
//!
//! As in CEFT-PVFS (see `paper`), writes that wait for their second copy form a queue with
//! exponential times between arrivals and of service (M/M/1).

use crate::scheme::Misfit;

/// When writes are acknowledged relative to their copies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Duplication {
    /// A write is acknowledged when all copies are written.
    Synchronous,
    /// A write is acknowledged when one copy is written. The server makes the others, or the client
    /// writes them at the same time without waiting.
    Asynchronous {
        /// Mean hours between two writes to one primary disk (MTTW).
        write_every_hours: f64,
        /// Mean additional hours until the other copies are written (MTTD). For two writes that
        /// begin together and take exponential times, this equals the mean time of one write.
        duplicate_hours: f64,
        /// Mean bytes of a write.
        write_bytes: f64,
    },
}

impl Duplication {
    /// Probability that a primary disk holds acknowledged bytes that exist nowhere else: `MTTD /
    /// MTTW`.
    pub fn pending(&self) -> Result<f64, Misfit> {
        let Self::Asynchronous { write_every_hours, duplicate_hours, write_bytes } = *self else {
            return Ok(0.0);
        };
        let range = 0.0..=1e12;
        let sensible = write_every_hours > 0.0
            && range.contains(&write_every_hours)
            && range.contains(&duplicate_hours)
            && (0.0..=1e18).contains(&write_bytes);
        match duplicate_hours / write_every_hours {
            _ if !sensible => Err(Misfit::Value(
                "times and size of writes",
                "above 0, up to 1e12 hours and 1e18 bytes",
            )),
            busy if busy < 1.0 => Ok(busy),
            _ => Err(Misfit::Backlog),
        }
    }

    /// Mean bytes on a primary disk that exist nowhere else.
    pub fn bytes_at_risk(&self) -> Result<f64, Misfit> {
        let busy = self.pending()?;
        match *self {
            Self::Synchronous => Ok(0.0),
            Self::Asynchronous { write_bytes, .. } => Ok(busy / (1.0 - busy) * write_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writes(every: f64, duplicate: f64) -> Duplication {
        Duplication::Asynchronous {
            write_every_hours: every,
            duplicate_hours: duplicate,
            write_bytes: 1000.0,
        }
    }

    #[test]
    fn the_window_is_as_long_as_the_queue() {
        assert_eq!(writes(4.0, 1.0).pending(), Ok(0.25));
        assert_eq!(writes(2.0, 1.0).bytes_at_risk(), Ok(1000.0));
        assert_eq!(writes(4.0, 0.0).bytes_at_risk(), Ok(0.0));
        assert_eq!(Duplication::Synchronous.bytes_at_risk(), Ok(0.0));
        assert_eq!(writes(1.0, 1.0).pending(), Err(Misfit::Backlog));
        assert!(matches!(writes(0.0, 1.0).pending(), Err(Misfit::Value(..))));
        assert!(matches!(writes(f64::NAN, 1.0).pending(), Err(Misfit::Value(..))));
    }
}
