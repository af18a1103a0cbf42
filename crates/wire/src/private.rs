//! Encryption of a connection: the Noise protocol `NNpsk0` by `snow`, with the key of the connection
//! as the shared key. Both sides make a key pair for this connection alone and forget it. So who
//! records the bytes, and learns all lasting keys later, learns nothing of what was sent.
//!
//! After that all bytes travel in records: two bytes with the length of the rest (little-endian),
//! then the ciphertext with its code. The records of a direction are numbered by the cipher: one
//! that is changed, repeated, left out or from elsewhere is refused. Both sides change the key after
//! every [`REKEY_RECORDS`].

use crate::key::Key;
use snow::params::{CipherChoice, DHChoice, HashChoice};
use snow::resolvers::{CryptoResolver, DefaultResolver};
use snow::types::{Cipher, Dh, Hash, Random};
use snow::{Builder, HandshakeState, TransportState};
use std::fmt;
use weir_types::{Error, ErrorKind, Result};

/// ChaCha20-Poly1305 is fast without instructions of its own, and its time does not depend on the
/// bytes.
const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";
/// The most bytes in a record before encryption.
pub const MAX_RECORD_BYTES: usize = 16 << 10;
/// Bytes of the code behind the ciphertext.
const CODE_BYTES: usize = 16;
/// Bytes of the length in front of the ciphertext.
const LENGTH_BYTES: usize = 2;
/// The longest record.
pub const MAX_SEALED_BYTES: usize = LENGTH_BYTES + MAX_RECORD_BYTES + CODE_BYTES;
/// Records of a direction under one key: 1 GiB of full ones.
pub const REKEY_RECORDS: u64 = 1 << 16;
/// The most bytes of memory that are kept for the next short pieces.
const MAX_KEPT_BYTES: usize = 1 << 10;
/// Bytes of each message of the handshake: a public key and a code.
const MESSAGE_BYTES: usize = 32 + CODE_BYTES;

const _: () = assert!(MAX_RECORD_BYTES + CODE_BYTES <= u16::MAX as usize);

fn failed(error: snow::Error) -> Error {
    match error {
        snow::Error::Decrypt => {
            Error::new(ErrorKind::Protocol, "what was received was changed on the way")
        }
        error => Error::new(ErrorKind::Internal, format!("encryption failed: {error}")),
    }
}

/// Gives `snow` the random bytes of this connection, which are made outside.
struct Resolver {
    secret: [u8; 32],
}

struct Once(Option<[u8; 32]>);

impl Random for Once {
    fn try_fill_bytes(&mut self, out: &mut [u8]) -> std::result::Result<(), snow::Error> {
        let bytes = self.0.take().filter(|bytes| bytes.len() == out.len());
        out.copy_from_slice(&bytes.ok_or(snow::Error::Rng)?);
        Ok(())
    }
}

impl CryptoResolver for Resolver {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        Some(Box::new(Once(Some(self.secret))))
    }
    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        DefaultResolver.resolve_dh(choice)
    }
    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        DefaultResolver.resolve_hash(choice)
    }
    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        DefaultResolver.resolve_cipher(choice)
    }
}

fn begin(psk: &Key, secret: [u8; 32], initiates: bool) -> Result<HandshakeState> {
    let params = PATTERN.parse().map_err(failed)?;
    let builder = Builder::with_resolver(params, Box::new(Resolver { secret }));
    let builder = builder.psk(0, psk.expose()).map_err(failed)?;
    match initiates {
        true => builder.build_initiator(),
        false => builder.build_responder(),
    }
    .map_err(failed)
}

/// The client's side, between its message and the server's.
pub struct Initiator(Box<HandshakeState>);

impl fmt::Debug for Initiator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Initiator(..)")
    }
}

impl Initiator {
    /// Begins with a key for this connection, which follows from all that was said before, and 32
    /// fresh random bytes. Returns the message for the server.
    pub fn begin(psk: &Key, secret: [u8; 32]) -> Result<(Self, Vec<u8>)> {
        let mut noise = begin(psk, secret, true)?;
        let mut message = vec![0; MESSAGE_BYTES];
        let n = noise.write_message(&[], &mut message).map_err(failed)?;
        message.truncate(n);
        Ok((Self(Box::new(noise)), message))
    }

    /// Ends with the server's message.
    ///
    /// # Errors
    /// `AuthFailed`: it is not from the server, or was changed.
    pub fn finish(mut self, message: &[u8]) -> Result<Records> {
        let mut nothing = [0; MESSAGE_BYTES];
        self.0.read_message(message, &mut nothing).map_err(not_from_peer)?;
        Records::new(*self.0)
    }
}

/// The server's side. Returns the message for the client.
///
/// # Errors
/// `AuthFailed`: the client's message is not from it, or was changed.
pub fn respond(psk: &Key, secret: [u8; 32], message: &[u8]) -> Result<(Records, Vec<u8>)> {
    let mut noise = begin(psk, secret, false)?;
    let mut nothing = [0; MESSAGE_BYTES];
    noise.read_message(message, &mut nothing).map_err(not_from_peer)?;
    let mut answer = vec![0; MESSAGE_BYTES];
    let n = noise.write_message(&[], &mut answer).map_err(failed)?;
    answer.truncate(n);
    Ok((Records::new(noise)?, answer))
}

fn not_from_peer(_: snow::Error) -> Error {
    Error::new(ErrorKind::AuthFailed, "the agreement on keys was changed on the way")
}

/// Seals and opens the records of a connection, each direction in order.
pub struct Records {
    noise: TransportState,
    sealed: u64,
    opened: u64,
    /// Gathers short pieces into one record.
    gathered: Vec<u8>,
}

impl fmt::Debug for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Records")
            .field("sealed", &self.sealed)
            .field("opened", &self.opened)
            .finish_non_exhaustive()
    }
}

impl Records {
    fn new(noise: HandshakeState) -> Result<Self> {
        let noise = noise.into_transport_mode().map_err(failed)?;
        Ok(Self { noise, sealed: 0, opened: 0, gathered: Vec::new() })
    }

    /// Appends records of the bytes of several slices, until at least `limit` of them are taken.
    /// Returns how many were: all, or less than `limit` and one record.
    pub fn seal<'a>(
        &mut self,
        slices: impl Iterator<Item = &'a [u8]>,
        limit: usize,
        out: &mut Vec<u8>,
    ) -> Result<usize> {
        let mut gathered = std::mem::take(&mut self.gathered);
        gathered.clear();
        let mut taken = 0;
        for mut rest in slices {
            while !rest.is_empty() && taken < limit {
                let n = rest.len().min(MAX_RECORD_BYTES - gathered.len());
                let (now, later) = rest.split_at(n);
                if n == MAX_RECORD_BYTES {
                    self.seal_one(now, out)?;
                } else {
                    gathered.extend_from_slice(now);
                }
                if gathered.len() == MAX_RECORD_BYTES {
                    self.seal_one(&gathered, out)?;
                    gathered.clear();
                }
                taken += n;
                rest = later;
            }
            if taken >= limit {
                break;
            }
        }
        if !gathered.is_empty() {
            self.seal_one(&gathered, out)?;
        }
        if gathered.capacity() <= MAX_KEPT_BYTES {
            self.gathered = gathered;
        }
        Ok(taken)
    }

    fn seal_one(&mut self, plain: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let start = out.len();
        let len = plain.len() + CODE_BYTES;
        out.resize(start + LENGTH_BYTES + len, 0);
        out[start..start + LENGTH_BYTES].copy_from_slice(&(len as u16).to_le_bytes());
        self.noise.write_message(plain, &mut out[start + LENGTH_BYTES..]).map_err(failed)?;
        self.sealed += 1;
        if self.sealed.is_multiple_of(REKEY_RECORDS) {
            self.noise.rekey_outgoing();
        }
        Ok(())
    }

    /// Length of the record at the beginning of `bytes`, and of what is in it; `None`: not all of it
    /// is there.
    ///
    /// # Errors
    /// `Protocol`: no record is that long or that short.
    pub fn next(bytes: &[u8]) -> Result<Option<(usize, usize)>> {
        let Some(length) = bytes.first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
        let len = usize::from(u16::from_le_bytes(*length));
        if !(CODE_BYTES + 1..=CODE_BYTES + MAX_RECORD_BYTES).contains(&len) {
            return Err(Error::new(ErrorKind::Protocol, "a record has a length that none has"));
        }
        Ok((bytes.len() >= LENGTH_BYTES + len).then_some((LENGTH_BYTES + len, len - CODE_BYTES)))
    }

    /// Opens a whole record, whose length [`Records::next`] told, into `plain`.
    ///
    /// # Errors
    /// `Protocol`: it is not the next one that the peer sealed, or was changed on the way. The
    /// connection has to be made anew.
    pub fn open(&mut self, record: &[u8], plain: &mut [u8]) -> Result<usize> {
        let sealed = record.get(LENGTH_BYTES..).unwrap_or_default();
        let n = self.noise.read_message(sealed, plain).map_err(failed)?;
        self.opened += 1;
        if self.opened.is_multiple_of(REKEY_RECORDS) {
            self.noise.rekey_incoming();
        }
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn psk() -> Key {
        Key::from_bytes([7; 32])
    }

    fn pair_of(client: [u8; 32], server: [u8; 32]) -> (Records, Records) {
        let (initiator, message) = Initiator::begin(&psk(), client).unwrap();
        let (records, answer) = respond(&psk(), server, &message).unwrap();
        (initiator.finish(&answer).unwrap(), records)
    }

    fn pair() -> (Records, Records) {
        pair_of([1; 32], [2; 32])
    }

    fn sealed(records: &mut Records, plain: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let taken = records.seal([plain].into_iter(), usize::MAX, &mut out).unwrap();
        assert_eq!(taken, plain.len());
        out
    }

    fn opened(records: &mut Records, mut bytes: &[u8]) -> Result<Vec<u8>> {
        let mut all = Vec::new();
        while !bytes.is_empty() {
            let (len, inside) = Records::next(bytes)?.ok_or(ErrorKind::Protocol)?;
            let mut plain = vec![0; inside];
            assert_eq!(records.open(&bytes[..len], &mut plain)?, inside);
            all.extend(plain);
            bytes = &bytes[len..];
        }
        Ok(all)
    }

    #[test]
    fn bytes_of_every_length_come_back_both_ways_in_bounded_records() {
        let (mut client, mut server) = pair();
        for len in [1, 100, MAX_RECORD_BYTES, MAX_RECORD_BYTES + 1, 100_000] {
            let plain: Vec<u8> = (0..len).map(|i| i as u8).collect();
            let bytes = sealed(&mut client, &plain);
            assert!(opened(&mut server, &bytes).unwrap() == plain);
            let back = sealed(&mut server, &plain);
            assert!(opened(&mut client, &back).unwrap() == plain);
        }
        // Short pieces travel in one record, and not much more is taken than asked for.
        let mut out = Vec::new();
        let pieces = [[1u8; 10].as_slice(); 5];
        assert_eq!(client.seal(pieces.into_iter(), usize::MAX, &mut out).unwrap(), 50);
        assert_eq!(Records::next(&out).unwrap(), Some((out.len(), 50)));
        let long = [3; 5 * MAX_RECORD_BYTES];
        let taken = client.seal([long.as_slice()].into_iter(), 20_000, &mut out).unwrap();
        assert_eq!(taken, 2 * MAX_RECORD_BYTES);
    }

    #[test]
    fn a_record_changed_in_any_bit_repeated_left_out_or_cut_is_refused() {
        let bytes = sealed(&mut pair().0, b"text");
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(opened(&mut pair().1, &bad).is_err(), "bit {bit}");
        }
        let (mut client, mut server) = pair();
        let (first, second) = (sealed(&mut client, b"first"), sealed(&mut client, b"second"));
        assert!(opened(&mut pair().1, &second).is_err(), "one was left out");
        assert!(opened(&mut server, &first[..first.len() - 1]).is_err());
        assert_eq!(opened(&mut server, &first).unwrap(), b"first");
        assert_eq!(opened(&mut server, &first).unwrap_err().kind, ErrorKind::Protocol);
        assert!(opened(&mut client, &second).is_err(), "it came back to who sent it");
    }

    #[test]
    fn lengths_that_no_record_has_are_refused() {
        for len in [0, CODE_BYTES, CODE_BYTES + MAX_RECORD_BYTES + 1] {
            assert!(Records::next(&(len as u16).to_le_bytes()).is_err(), "{len}");
        }
        assert_eq!(Records::next(&[17]).unwrap(), None);
        assert_eq!(Records::next(&[17, 0, 1]).unwrap(), None);
    }

    #[test]
    fn nobody_who_knows_the_lasting_key_alone_opens_what_was_recorded() {
        // The same shared key and the same random bytes of the client: the server's differ.
        let bytes = sealed(&mut pair_of([1; 32], [2; 32]).0, b"text");
        assert!(opened(&mut pair_of([1; 32], [3; 32]).1, &bytes).is_err());
        let other = sealed(&mut pair_of([4; 32], [2; 32]).0, b"text");
        assert_ne!(bytes, other);
        assert_eq!(opened(&mut pair_of([1; 32], [2; 32]).1, &bytes).unwrap(), b"text");
    }

    #[test]
    fn another_key_or_a_changed_message_ends_the_agreement() {
        let (_, message) = Initiator::begin(&psk(), [1; 32]).unwrap();
        assert!(respond(&Key::from_bytes([8; 32]), [2; 32], &message).is_err());
        for len in 0..message.len() {
            assert!(respond(&psk(), [2; 32], &message[..len]).is_err());
        }
        let (_, answer) = respond(&psk(), [2; 32], &message).unwrap();
        for at in 0..answer.len() {
            let (initiator, _) = Initiator::begin(&psk(), [1; 32]).unwrap();
            let mut bad = answer.clone();
            bad[at] ^= 1;
            assert!(initiator.finish(&bad).is_err(), "byte {at}");
        }
    }

    #[test]
    fn keys_change_after_so_many_records_on_both_sides_at_once() {
        let (mut client, mut server) = pair();
        for n in 0..REKEY_RECORDS + 2 {
            let bytes = sealed(&mut client, &n.to_le_bytes());
            assert_eq!(opened(&mut server, &bytes).unwrap(), n.to_le_bytes());
        }
    }
}
