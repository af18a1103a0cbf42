//! Keys and message authentication codes, both from BLAKE3: one primitive for key derivation and
//! MACs, which is fast on short inputs.

use std::fmt;
use weir_types::codec::{Decode, DecodeError, Encode, Reader};
use weir_types::{ClientId, KeyGeneration, ServerId, TargetId};

/// A 256-bit secret. Never printed, never encoded in a message in the clear.
#[derive(Clone, PartialEq, Eq)]
pub struct Key([u8; 32]);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

/// A 128-bit authentication code. Its comparison takes constant time.
#[derive(Clone, Copy, Debug, Default, Eq)]
pub struct Mac(pub [u8; 16]);

impl PartialEq for Mac {
    fn eq(&self, other: &Self) -> bool {
        let differs = self.0.iter().zip(&other.0).fold(0u8, |acc, (a, b)| acc | (a ^ b));
        // A barrier keeps the compiler from leaving the loop early.
        std::hint::black_box(differs) == 0
    }
}
impl Encode for Mac {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }
}
impl Decode for Mac {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self(r.array()?))
    }
}

impl Key {
    /// Makes a key from 32 random bytes.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The secret bytes, for writing a key file.
    pub fn expose(&self) -> &[u8; 32] {
        &self.0
    }

    /// Parses 64 hexadecimal digits.
    pub fn from_hex(text: &str) -> Option<Self> {
        let text = text.trim().as_bytes();
        // `from_str_radix` would take "+f" for a number.
        if text.len() != 64 || !text.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        let mut key = [0u8; 32];
        for (byte, pair) in key.iter_mut().zip(text.chunks_exact(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
        }
        Some(Self(key))
    }

    /// Formats the key as 64 hexadecimal digits.
    pub fn to_hex(&self) -> String {
        self.0.iter().map(|b| format!("{b:02x}")).collect()
    }

    /// Derives a key from this one, a purpose, and data.
    pub fn derive(&self, purpose: &str, parts: &[&[u8]]) -> Key {
        Key(*self.hash(purpose, parts).as_bytes())
    }

    /// Computes the MAC of some data for a purpose.
    pub fn mac(&self, purpose: &str, parts: &[&[u8]]) -> Mac {
        let mut mac = [0; 16];
        mac.copy_from_slice(&self.hash(purpose, parts).as_bytes()[..16]);
        Mac(mac)
    }

    /// Computes the MAC of one piece of data without a purpose, for keys that have only one use
    /// (the frames of one direction of one connection).
    pub fn mac_frame(&self, data: &[u8]) -> Mac {
        let hash = blake3::keyed_hash(&self.0, data);
        let mut mac = [0; 16];
        mac.copy_from_slice(&hash.as_bytes()[..16]);
        Mac(mac)
    }

    /// Computes the MAC of the bytes of several pieces, one after the other, without a purpose.
    pub fn mac_parts<'a>(&self, parts: impl Iterator<Item = &'a [u8]>) -> Mac {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        for part in parts {
            hasher.update(part);
        }
        let mut mac = [0; 16];
        mac.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
        Mac(mac)
    }

    /// The working key of a target, which signs its capabilities, from the target's key. The
    /// metadata server and the target's server derive each generation alike, so no key travels; and
    /// who knows one knows no other.
    pub fn working(&self, generation: KeyGeneration) -> Key {
        self.derive("weir 1 working", &[&generation.0.to_le_bytes()])
    }

    /// Encrypts or decrypts 32 bytes (the same operation) under a fresh nonce.
    pub(crate) fn mask(&self, nonce: &[u8; 16], bytes: &mut [u8; 32]) {
        let pad = self.hash("weir 1 mask", &[nonce]);
        for (b, p) in bytes.iter_mut().zip(pad.as_bytes()) {
            *b ^= p;
        }
    }

    // Lengths go in front of the parts, so that no two lists of parts collide.
    fn hash(&self, purpose: &str, parts: &[&[u8]]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        for part in std::iter::once(&purpose.as_bytes()).chain(parts) {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        hasher.finalize()
    }
}

/// The cluster's master key, from which the metadata server derives all other keys. Data servers
/// and clients never see it.
#[derive(Clone, Debug)]
pub struct MasterKey(pub Key);

impl MasterKey {
    /// The key of a target, from which its working keys follow ([`Key::working`]).
    pub fn target(&self, target: TargetId, generation: KeyGeneration) -> Key {
        self.0.derive("weir 1 target", &[&target.0.to_le_bytes(), &generation.0.to_le_bytes()])
    }

    /// The credential of a client. It is derived, so that the metadata server stores no table of
    /// secrets.
    pub fn client(&self, client: ClientId) -> Key {
        self.0.derive("weir 1 client", &[&client.0.to_le_bytes()])
    }

    /// The key with which a data server authenticates and reads its tickets.
    pub fn server(&self, server: ServerId, generation: KeyGeneration) -> Key {
        self.0.derive("weir 1 server", &[&server.0.to_le_bytes(), &generation.0.to_le_bytes()])
    }

    /// The key with which metadata servers authenticate to each other.
    pub fn metadata(&self) -> Key {
        self.0.derive("weir 1 metadata server", &[])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_round_trips_and_secrets_are_not_printed() {
        let key = Key::from_bytes([0xa5; 32]);
        assert_eq!(Key::from_hex(&key.to_hex()), Some(key.clone()));
        assert_eq!(Key::from_hex("xyz"), None);
        assert_eq!(Key::from_hex(&"+f".repeat(32)), None);
        assert!(!format!("{key:?}").contains("165"));
    }

    #[test]
    fn parts_do_not_run_into_each_other() {
        let key = Key::from_bytes([1; 32]);
        assert_ne!(key.mac("p", &[b"ab", b"c"]), key.mac("p", &[b"a", b"bc"]));
        assert_ne!(key.mac("p", &[b"a"]), key.mac("q", &[b"a"]));
    }

    #[test]
    fn targets_and_generations_have_keys_of_their_own() {
        let master = MasterKey(Key::from_bytes([9; 32]));
        let key = |t, g| master.target(TargetId(t), KeyGeneration(g));
        assert_ne!(key(1, 1), key(2, 1));
        assert_ne!(key(1, 1), key(1, 2));
        assert_ne!(key(1, 1), master.server(ServerId(1), KeyGeneration(1)));
        let working = |t, g| key(t, 1).working(KeyGeneration(g));
        assert_ne!(working(1, 1), working(1, 2));
        assert_ne!(working(1, 1), working(2, 1));
        assert_ne!(working(1, 1), key(1, 1));
    }
}
