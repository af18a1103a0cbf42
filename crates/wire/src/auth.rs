//! Authenticates the frames of one direction of one connection. Each frame carries a sequence
//! number that grows by one, and a MAC under a key that only this direction of this connection
//! uses. A frame that is altered, repeated, delayed, dropped or taken from another connection is
//! refused.

use crate::frame::{HEADER_BYTES, MAC_OFFSET, SEQUENCE_OFFSET};
use crate::key::{Key, Mac};
use weir_types::{Error, ErrorKind};

/// Signs outgoing frames.
#[derive(Debug)]
pub struct Sealer {
    key: Key,
    next: u64,
}

/// Checks incoming frames.
#[derive(Debug)]
pub struct Opener {
    key: Key,
    next: u64,
}

impl Sealer {
    /// Starts with sequence number 0.
    pub fn new(key: Key) -> Self {
        Self { key, next: 0 }
    }

    /// Sets sequence number and MAC of a frame head (header, body, checksums) made by
    /// [`crate::frame::encode_head`]. Frames must be sent in the order in which they were sealed.
    pub fn seal(&mut self, head: &mut [u8]) {
        head[SEQUENCE_OFFSET..SEQUENCE_OFFSET + 8].copy_from_slice(&self.next.to_le_bytes());
        head[MAC_OFFSET..HEADER_BYTES].fill(0);
        let mac = self.key.mac_frame(head);
        head[MAC_OFFSET..HEADER_BYTES].copy_from_slice(&mac.0);
        self.next += 1;
    }
}

impl Opener {
    /// Expects sequence number 0 first.
    pub fn new(key: Key) -> Self {
        Self { key, next: 0 }
    }

    /// Checks a frame head. `head` is changed: its MAC is zeroed.
    pub fn open(&mut self, head: &mut [u8]) -> Result<(), Error> {
        if head.len() < HEADER_BYTES {
            return Err(ErrorKind::Protocol.into());
        }
        let mut mac = Mac::default();
        mac.0.copy_from_slice(&head[MAC_OFFSET..HEADER_BYTES]);
        head[MAC_OFFSET..HEADER_BYTES].fill(0);
        if self.key.mac_frame(head) != mac {
            return Err(Error::new(ErrorKind::AuthFailed, "message authentication code is wrong"));
        }
        if head[SEQUENCE_OFFSET..SEQUENCE_OFFSET + 8] != self.next.to_le_bytes() {
            return Err(Error::new(
                ErrorKind::AuthFailed,
                "message is repeated or out of sequence",
            ));
        }
        self.next += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Header, encode_head};
    use crate::message::Op;
    use weir_types::RequestId;

    fn sealed(sealer: &mut Sealer) -> Vec<u8> {
        let mut out = Vec::new();
        encode_head(&mut out, Header::request(Op::Read, RequestId(5)), &77u64, &[1, 2], 0);
        sealer.seal(&mut out);
        out
    }

    fn pair() -> (Sealer, Opener) {
        let key = Key::from_bytes([3; 32]);
        (Sealer::new(key.clone()), Opener::new(key))
    }

    #[test]
    fn frames_in_order_pass_and_a_replay_is_refused() {
        let (mut sealer, mut opener) = pair();
        let (a, b) = (sealed(&mut sealer), sealed(&mut sealer));
        assert!(opener.open(&mut a.clone()).is_ok());
        assert_eq!(opener.open(&mut a.clone()).unwrap_err().kind, ErrorKind::AuthFailed);
        assert!(opener.open(&mut b.clone()).is_ok());
    }

    #[test]
    fn any_flipped_bit_is_refused() {
        let (mut sealer, _) = pair();
        let frame = sealed(&mut sealer);
        for bit in 0..frame.len() * 8 {
            let mut bad = frame.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(pair().1.open(&mut bad).is_err(), "bit {bit}");
        }
    }
}
