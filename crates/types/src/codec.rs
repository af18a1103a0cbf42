//! The byte codec of message bodies and metadata records: little-endian, lengths before contents.
//! Every length is checked against the remaining bytes and against a limit before anything is
//! allocated.

use crate::limits::{MAX_BODY_BYTES, MAX_LIST_LEN};

/// Why bytes were refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The bytes end before the value does.
    #[error("message is cut short")]
    Truncated,
    /// A length or count is over its limit.
    #[error("a length in the message is over its limit")]
    TooLong,
    /// A tag, flag or number that has no meaning here.
    #[error("a field of the message has a value that means nothing")]
    BadValue,
    /// Bytes are left after the value.
    #[error("bytes are left over after the message")]
    Trailing,
}

/// A cursor over received bytes.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Starts at the first byte.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Takes the next `n` bytes.
    pub fn take(&mut self, n: usize) -> Result<&'a [u8], DecodeError> {
        if n > self.rest.len() {
            return Err(DecodeError::Truncated);
        }
        let (head, tail) = self.rest.split_at(n);
        self.rest = tail;
        Ok(head)
    }

    /// Takes the next `N` bytes as an array.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        self.take(N)?.try_into().map_err(|_| DecodeError::Truncated)
    }

    /// Number of remaining bytes.
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Fails unless every byte was consumed.
    pub fn finish(self) -> Result<(), DecodeError> {
        if self.rest.is_empty() { Ok(()) } else { Err(DecodeError::Trailing) }
    }
}

/// A value that can be written as bytes.
pub trait Encode {
    /// Appends the value.
    fn encode(&self, out: &mut Vec<u8>);

    /// The value encoded on its own.
    fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode(&mut out);
        out
    }
}

/// A value that can be decoded from untrusted bytes.
pub trait Decode: Sized {
    /// Reads the value and advances.
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError>;

    /// Reads the value from exactly these bytes.
    fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        let value = Self::decode(&mut r)?;
        r.finish()?;
        Ok(value)
    }
}

impl<T: Encode + ?Sized> Encode for &T {
    fn encode(&self, out: &mut Vec<u8>) {
        (**self).encode(out);
    }
}

macro_rules! codec_int {
    ($($t:ty)*) => {$(
        impl Encode for $t {
            fn encode(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
        }
        impl Decode for $t {
            fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
                Ok(<$t>::from_le_bytes(r.array()?))
            }
        }
    )*};
}
codec_int!(u8 u16 u32 u64 i64);

impl Encode for bool {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
}
impl Decode for bool {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match u8::decode(r)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(DecodeError::BadValue),
        }
    }
}

impl<const N: usize> Encode for [u8; N] {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }
}
impl<const N: usize> Decode for [u8; N] {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.array()
    }
}

/// A byte string (file names, symlink targets, attribute values): not
/// necessarily UTF-8. Kept apart from `Vec<T>` so that it is copied in one go.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub Vec<u8>);

impl From<&[u8]> for Bytes {
    fn from(b: &[u8]) -> Self {
        Self(b.to_vec())
    }
}
impl std::ops::Deref for Bytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}
impl Encode for Bytes {
    fn encode(&self, out: &mut Vec<u8>) {
        (self.0.len() as u32).encode(out);
        out.extend_from_slice(&self.0);
    }
}
impl Decode for Bytes {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let len = u32::decode(r)? as usize;
        if len > MAX_BODY_BYTES {
            return Err(DecodeError::TooLong);
        }
        Ok(Self(r.take(len)?.to_vec()))
    }
}

impl Encode for str {
    fn encode(&self, out: &mut Vec<u8>) {
        (self.len() as u32).encode(out);
        out.extend_from_slice(self.as_bytes());
    }
}
impl Encode for String {
    fn encode(&self, out: &mut Vec<u8>) {
        self.as_str().encode(out);
    }
}
impl Decode for String {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        String::from_utf8(Bytes::decode(r)?.0).map_err(|_| DecodeError::BadValue)
    }
}

impl<T: Encode> Encode for Vec<T> {
    fn encode(&self, out: &mut Vec<u8>) {
        (self.len() as u32).encode(out);
        for item in self {
            item.encode(out);
        }
    }
}
impl<T: Decode> Decode for Vec<T> {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let len = u32::decode(r)? as usize;
        // Every element takes at least one byte, so a count above the remaining bytes is invalid.
        // Checked before memory is allocated for it.
        if len > MAX_LIST_LEN || len > r.remaining() {
            return Err(DecodeError::TooLong);
        }
        let mut items = Vec::with_capacity(len.min(1024));
        for _ in 0..len {
            items.push(T::decode(r)?);
        }
        Ok(items)
    }
}

impl<T: Encode> Encode for Option<T> {
    fn encode(&self, out: &mut Vec<u8>) {
        self.is_some().encode(out);
        if let Some(value) = self {
            value.encode(out);
        }
    }
}
impl<T: Decode> Decode for Option<T> {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(if bool::decode(r)? { Some(T::decode(r)?) } else { None })
    }
}

impl<A: Encode, B: Encode> Encode for (A, B) {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
        self.1.encode(out);
    }
}
impl<A: Decode, B: Decode> Decode for (A, B) {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok((A::decode(r)?, B::decode(r)?))
    }
}
impl Encode for () {
    fn encode(&self, _out: &mut Vec<u8>) {}
}
impl Decode for () {
    fn decode(_r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(())
    }
}

/// Implements the codec for a struct, field by field in the order given. All fields must be named:
/// the struct literal in `decode` makes the compiler check that.
#[macro_export]
macro_rules! codec_struct {
    ($name:ident { $($field:ident),* $(,)? }) => {
        impl $crate::codec::Encode for $name {
            fn encode(&self, out: &mut Vec<u8>) {
                let _ = &out;
                $($crate::codec::Encode::encode(&self.$field, out);)*
            }
        }
        impl $crate::codec::Decode for $name {
            fn decode(
                r: &mut $crate::codec::Reader<'_>,
            ) -> Result<Self, $crate::codec::DecodeError> {
                let _ = &r;
                Ok(Self { $($field: $crate::codec::Decode::decode(r)?,)* })
            }
        }
    };
}

/// Implements the codec for a field-less enum as a one-byte tag.
#[macro_export]
macro_rules! codec_tag {
    ($name:ident { $($variant:ident = $tag:literal),* $(,)? }) => {
        impl $crate::codec::Encode for $name {
            fn encode(&self, out: &mut Vec<u8>) {
                out.push(match self { $($name::$variant => $tag,)* });
            }
        }
        impl $crate::codec::Decode for $name {
            fn decode(
                r: &mut $crate::codec::Reader<'_>,
            ) -> Result<Self, $crate::codec::DecodeError> {
                match u8::decode(r)? {
                    $($tag => Ok($name::$variant),)*
                    _ => Err($crate::codec::DecodeError::BadValue),
                }
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn lists_and_strings_round_trip(v in proptest::collection::vec(".{0,20}", 0..20), o in any::<Option<u64>>()) {
            let value = (v, o);
            prop_assert_eq!(<(Vec<String>, Option<u64>)>::from_bytes(&value.to_bytes()).unwrap(), value);
        }

        #[test]
        fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = <(Vec<Bytes>, Option<(String, bool)>)>::from_bytes(&bytes);
        }
    }

    #[test]
    fn a_count_beyond_the_bytes_left_is_refused_before_allocating() {
        let lie = u32::MAX.to_bytes();
        assert_eq!(Vec::<u64>::from_bytes(&lie), Err(DecodeError::TooLong));
    }

    #[test]
    fn leftover_bytes_are_refused() {
        assert_eq!(u8::from_bytes(&[1, 2]), Err(DecodeError::Trailing));
    }
}
