//! Copies from standard input and to standard output.

use super::bytes::CALL_BYTES;
use super::place::Place;
use super::work::Copier;
use crate::failure::{Done, Failure};
use crate::files::tree::{Meta, Source};
use std::io::{Read, Write};
use weir_types::{ErrorKind, FileKind, Timestamp};

impl Copier {
    /// Copies standard input to a file.
    pub fn copy_stdin(&self, to: &Place) -> Done {
        let to = Place { path: to.tree.real_path(&to.path)?, ..to.clone() };
        let there = to.tree.stat(&to.path, false)?;
        if there.as_ref().is_some_and(|there| there.kind == FileKind::Directory) {
            return Err(Failure::new(ErrorKind::IsDirectory.text()).about(to.shown()));
        }
        let meta = Meta {
            kind: FileKind::File,
            mode: 0o666,
            uid: 0,
            gid: 0,
            nlink: 1,
            rdev: 0,
            size: 0,
            atime: Timestamp::default(),
            mtime: Timestamp::default(),
            identity: (0, 0),
        };
        let partial = self.begin(&to, (&meta, there.as_ref()), Vec::new())?;
        let written = write_all(&mut std::io::stdin().lock(), |offset, bytes| {
            partial.sink.write_at(offset, bytes)
        });
        let done = written
            .and_then(|()| self.require_lock(&partial, &to))
            .and_then(|()| self.complete(&partial, &to, None));
        self.end_partial(done, &partial, &to)
    }
}

fn write_all(input: &mut impl Read, mut write: impl FnMut(u64, &[u8]) -> Done) -> Done {
    let mut buffer = vec![0; CALL_BYTES];
    let mut offset = 0;
    loop {
        let n = match input.read(&mut buffer) {
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
            n => {
                n.map_err(|e| Failure::from(weir_types::Error::from(e)).about("standard input"))?
            }
        };
        if n == 0 {
            return Ok(());
        }
        write(offset, &buffer[..n])?;
        offset += n as u64;
    }
}

/// Prints a whole file. If the reader of a pipe has ended that is no failure.
pub fn to_stdout(source: &dyn Source) -> Done {
    let mut output = std::io::stdout().lock();
    let mut buffer = vec![0; CALL_BYTES];
    let mut offset = 0;
    loop {
        let n = source.read_at(offset, &mut buffer)?;
        if n == 0 {
            return Ok(());
        }
        match output.write_all(&buffer[..n]).and_then(|()| output.flush()) {
            Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => return Ok(()),
            done => done
                .map_err(|e| Failure::from(weir_types::Error::from(e)).about("standard output"))?,
        }
        offset += n as u64;
    }
}
