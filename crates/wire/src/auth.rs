//! Authenticates the frames of one direction of one connection. Each frame carries a sequence
//! number that grows by one, and a MAC under a key that only this direction of this connection
//! uses. A frame that is altered, repeated, delayed, dropped or taken from another connection is
//! refused.
//!
//! The MAC covers the head. At [`Level::Data`] the head of a frame with a payload ends with a code
//! of the payload under another key of this direction.

use crate::frame::{HEADER_BYTES, Header, MAC_OFFSET, PAYLOAD_LEN_OFFSET, SEQUENCE_OFFSET};
use crate::key::{Key, Mac};
use crate::protection::Level;
use weir_types::{Error, ErrorKind};

/// Bytes of the code of a payload, at the end of the head.
pub const PAYLOAD_CODE_BYTES: usize = 16;

/// Signs outgoing frames.
#[derive(Debug)]
pub struct Sealer {
    key: Key,
    /// Key of the codes of payloads, if they have any.
    payload_key: Option<Key>,
    next: u64,
}

/// Checks incoming frames.
#[derive(Debug)]
pub struct Opener {
    key: Key,
    payload_key: Option<Key>,
    next: u64,
}

fn payload_key(level: Level, key: &Key) -> Option<Key> {
    (level == Level::Data).then(|| key.derive("weir 1 payload", &[]))
}

impl Sealer {
    /// Starts with sequence number 0. Payloads have no codes.
    pub fn new(key: Key) -> Self {
        Self::at(Level::Args, key)
    }

    /// Starts with sequence number 0.
    pub fn at(level: Level, key: Key) -> Self {
        Self { payload_key: payload_key(level, &key), key, next: 0 }
    }

    /// Completes the frame head that begins at `start` of `out`, was made by
    /// [`crate::frame::encode_head`] and ends `out`: appends the code of the payload if there is
    /// one, and seals the head.
    pub fn seal_with<'a>(
        &mut self,
        out: &mut Vec<u8>,
        start: usize,
        payload: impl Iterator<Item = &'a [u8]>,
    ) {
        if let Some(key) = &self.payload_key
            && out[start + PAYLOAD_LEN_OFFSET..start + PAYLOAD_LEN_OFFSET + 4] != [0; 4]
        {
            out.extend_from_slice(&key.mac_parts(payload).0);
        }
        self.seal(&mut out[start..]);
    }

    /// Sets sequence number and MAC of a frame head (header, body, checksums, code of the payload)
    /// made by [`crate::frame::encode_head`]. Frames must be sent in the order in which they were sealed.
    pub fn seal(&mut self, head: &mut [u8]) {
        head[SEQUENCE_OFFSET..SEQUENCE_OFFSET + 8].copy_from_slice(&self.next.to_le_bytes());
        head[MAC_OFFSET..HEADER_BYTES].fill(0);
        let mac = self.key.mac_frame(head);
        head[MAC_OFFSET..HEADER_BYTES].copy_from_slice(&mac.0);
        self.next += 1;
    }
}

impl Opener {
    /// Expects sequence number 0 first, and no codes of payloads.
    pub fn new(key: Key) -> Self {
        Self::at(Level::Args, key)
    }

    /// Expects sequence number 0 first.
    pub fn at(level: Level, key: Key) -> Self {
        Self { payload_key: payload_key(level, &key), key, next: 0 }
    }

    /// Whether payloads have codes.
    pub fn has_payload_codes(&self) -> bool {
        self.payload_key.is_some()
    }

    /// Bytes of the code of a payload.
    pub fn payload_code_len(&self) -> usize {
        if self.has_payload_codes() { PAYLOAD_CODE_BYTES } else { 0 }
    }

    /// Bytes of a frame between its header and its payload.
    pub fn meta_len(&self, header: &Header) -> usize {
        match self.payload_key.is_some() && header.payload_len > 0 {
            true => header.meta_len() + PAYLOAD_CODE_BYTES,
            false => header.meta_len(),
        }
    }

    /// Checks a payload against its code in a head that was opened. Nothing of the payload may be
    /// used before.
    ///
    /// # Errors
    /// `Protocol`: it was changed on the way, and the connection has to be made anew.
    pub fn check_payload<'a>(
        &self,
        head: &[u8],
        payload: impl Iterator<Item = &'a [u8]>,
    ) -> Result<(), Error> {
        let Some(key) = &self.payload_key else { return Ok(()) };
        let code = head.last_chunk::<PAYLOAD_CODE_BYTES>().ok_or(ErrorKind::Protocol)?;
        match key.mac_parts(payload) == Mac(*code) {
            true => Ok(()),
            false => Err(Error::new(ErrorKind::Protocol, "the payload was changed on the way")),
        }
    }

    /// Checks a frame head. `head` is changed: its MAC is zeroed.
    ///
    /// # Errors
    /// `Protocol`: it was changed on the way, and the connection has to be made anew.
    pub fn open(&mut self, head: &mut [u8]) -> Result<(), Error> {
        if head.len() < HEADER_BYTES {
            return Err(ErrorKind::Protocol.into());
        }
        let mut mac = Mac::default();
        mac.0.copy_from_slice(&head[MAC_OFFSET..HEADER_BYTES]);
        head[MAC_OFFSET..HEADER_BYTES].fill(0);
        if self.key.mac_frame(head) != mac {
            return Err(Error::new(ErrorKind::Protocol, "message authentication code is wrong"));
        }
        if head[SEQUENCE_OFFSET..SEQUENCE_OFFSET + 8] != self.next.to_le_bytes() {
            return Err(Error::new(ErrorKind::Protocol, "message is repeated or out of sequence"));
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
        assert_eq!(opener.open(&mut a.clone()).unwrap_err().kind, ErrorKind::Protocol);
        assert!(opener.open(&mut b.clone()).is_ok());
    }

    #[test]
    fn with_a_code_any_flipped_bit_of_a_payload_is_refused_and_no_code_is_for_another_payload() {
        let key = Key::from_bytes([3; 32]);
        let (mut sealer, mut opener) =
            (Sealer::at(Level::Data, key.clone()), Opener::at(Level::Data, key));
        let payload = [5u8; 100];
        let mut frame = Vec::new();
        encode_head(&mut frame, Header::request(Op::Write, RequestId(5)), &77u64, &[1], 100);
        sealer.seal_with(&mut frame, 0, [&payload[..30], &payload[30..]].into_iter());
        let header = Header::parse(frame.first_chunk().unwrap()).unwrap();
        assert_eq!(frame.len(), HEADER_BYTES + opener.meta_len(&header));
        opener.open(&mut frame).unwrap();
        opener.check_payload(&frame, [&payload[..]].into_iter()).unwrap();
        for bit in 0..payload.len() * 8 {
            let mut bad = payload;
            bad[bit / 8] ^= 1 << (bit % 8);
            let error = opener.check_payload(&frame, [&bad[..]].into_iter()).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Protocol, "bit {bit}");
        }
        // Heads without payload are as long as ever.
        let mut short = Vec::new();
        encode_head(&mut short, Header::request(Op::Read, RequestId(6)), &77u64, &[], 0);
        sealer.seal_with(&mut short, 0, std::iter::empty());
        let header = Header::parse(short.first_chunk().unwrap()).unwrap();
        assert_eq!((short.len(), opener.meta_len(&header)), (HEADER_BYTES + 8, 8));
        opener.open(&mut short).unwrap();
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
