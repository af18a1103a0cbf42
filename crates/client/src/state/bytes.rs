//! The bytes of a write: one buffer, or several that follow each other.
//!
//! Invariant: each buffer after the first begins at the border of a block of an object, so that no
//! checksum covers bytes of two buffers.

use super::buffer::Buffer;
use weir_layout::Run;

/// Bytes in one buffer.
pub enum WriteData {
    /// A buffer of the client, with the number of used bytes.
    Ours(Buffer, usize),
    /// A buffer of the caller's, handed over so that its bytes are not copied.
    Owned(Box<dyn AsRef<[u8]> + Send>),
}

impl AsRef<[u8]> for WriteData {
    fn as_ref(&self) -> &[u8] {
        match self {
            WriteData::Ours(buffer, len) => &buffer[..*len],
            WriteData::Owned(owned) => (**owned).as_ref(),
        }
    }
}

/// The buffers of a write; see the top of the file.
#[derive(Default)]
pub(crate) struct Bytes {
    buffers: Vec<WriteData>,
    len: usize,
}

impl From<WriteData> for Bytes {
    fn from(data: WriteData) -> Self {
        Self { len: data.as_ref().len(), buffers: vec![data] }
    }
}

impl Bytes {
    /// Length, bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Appends a buffer, at the beginning of a block.
    pub(crate) fn push(&mut self, data: WriteData) {
        self.len += data.as_ref().len();
        self.buffers.push(data);
    }

    /// Copies bytes to the end of the last buffer. Returns false if that is the caller's, or has no
    /// space.
    pub(crate) fn append(&mut self, data: &[u8]) -> bool {
        let Some(WriteData::Ours(buffer, used)) = self.buffers.last_mut() else { return false };
        let Some(room) = buffer.get_mut(*used..*used + data.len()) else { return false };
        room.copy_from_slice(data);
        *used += data.len();
        self.len += data.len();
        true
    }

    /// Whether the last buffer was handed over by the caller.
    pub(crate) fn ends_with_given(&self) -> bool {
        matches!(self.buffers.last(), Some(WriteData::Owned(_)))
    }

    /// Whether some bytes are in memory from outside the pool.
    pub(crate) fn is_beyond_pool(&self) -> bool {
        let beyond = |data: &WriteData| matches!(data, WriteData::Ours(b, _) if !b.is_pooled());
        self.buffers.iter().any(beyond)
    }

    /// The bytes of a run that begins at `start`, piece by piece; `None` if there are fewer.
    pub(crate) fn pieces<'a>(
        &'a self,
        start: usize,
        run: &Run,
        out: &mut Vec<(Run, &'a [u8])>,
    ) -> Option<()> {
        let mut at = start.checked_add(usize::try_from(run.buffer_offset).ok()?)?;
        let mut rest = *run;
        for buffer in self.buffers.iter().map(AsRef::as_ref) {
            if at >= buffer.len() {
                at -= buffer.len();
                continue;
            }
            let bytes = &buffer[at..];
            let len = bytes.len().min(usize::try_from(rest.len).ok()?);
            out.push((Run { len: len as u64, ..rest }, &bytes[..len]));
            at = 0;
            rest.object_offset += len as u64;
            rest.buffer_offset += len as u64;
            rest.len -= len as u64;
            if rest.len == 0 {
                return Some(());
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_net::BufferPool;

    #[test]
    fn a_run_is_found_wherever_its_bytes_are() {
        let pool = BufferPool::new(1 << 20);
        let mut bytes = Bytes::from(WriteData::Owned(Box::new(vec![1; 100])));
        assert!(!bytes.append(&[2; 10]), "it is not ours");
        bytes.push(WriteData::Ours(Buffer::take(&pool, 50), 0));
        assert!(bytes.append(&[2; 20]) && bytes.append(&[3; 30]) && !bytes.append(&[4]));
        assert_eq!((bytes.len(), bytes.is_beyond_pool()), (150, false));
        let found = |start, buffer_offset, len| {
            let run = Run { object_offset: 7000, len, buffer_offset };
            let mut pieces = Vec::new();
            bytes.pieces(start, &run, &mut pieces)?;
            Some(pieces.into_iter().map(|(r, b)| (r.object_offset, b.to_vec())).collect::<Vec<_>>())
        };
        assert_eq!(found(10, 20, 5), Some(vec![(7000, vec![1; 5])]));
        let two = vec![(7000, vec![1; 2]), (7002, [[2; 20], [3; 20]].concat())];
        assert_eq!(found(90, 8, 42), Some(two));
        assert_eq!(found(100, 20, 30), Some(vec![(7000, vec![3; 30])]));
        assert_eq!(found(100, 20, 31), None);
    }
}
