//! `weir spread`: writes records to those disks that accept them first.

use crate::args::Spread as Arguments;
use crate::failure::{Done, Failure};
use crate::files::name::RemoteName;
use crate::files::progress::Progress;
use crate::files::remote::{RemoteTree, Sessions};
use crate::jobs::member;
use crate::output::{print, print_json};
use crate::text::{ByteSize, Table, human_size};
use serde_json::json;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, stdin};
use std::path::{Path, PathBuf};
use std::time::Instant;
use weir_jobs::{Fragment, Spread, SpreadOptions};
use weir_types::{Error, ErrorKind, FileId, FileKind};

/// The most bytes of one read.
const MAX_READ_BYTES: usize = 1 << 20;
/// The longest record, in bytes.
const MAX_RECORD_BYTES: usize = 64 << 20;

/// Runs `weir spread`.
///
/// # Errors
/// Errors of reading or writing. Some of the records read before are then not written.
pub fn run(spread: &Arguments) -> Done {
    let name = RemoteName::parse(&spread.directory)?;
    let options = SpreadOptions {
        name: spread.writer.clone().unwrap_or_else(|| rank().to_string()),
        credits: spread.credits,
        batch_bytes: usize::try_from(spread.batch.0).unwrap_or(usize::MAX),
    };
    options.check()?;
    let record = match spread.record {
        None => Record::Line,
        Some(ByteSize(bytes)) if (1..=MAX_RECORD_BYTES as u64).contains(&bytes) => {
            Record::Bytes(bytes as usize)
        }
        Some(_) => return Err(Failure::new("--record is 1 byte to 64 MiB")),
    };
    // Files are checked before anything is made.
    for path in spread.files.iter().filter(|path| *path != Path::new("-")) {
        std::fs::metadata(path).map_err(|e| Failure::file(path, e))?;
    }
    let tree = Sessions::default().tree(&spread.client, &name, "spread")?;
    let directory = directory(&tree, &name.path)?;
    let (started, in_directory) = (Instant::now(), tree.about(&name.path));
    let about = |error: Error| match error.kind {
        ErrorKind::Exists => {
            let hint = "another writer has written there: give this one a name with --writer, or \
                        another directory";
            in_directory(error).hint(hint)
        }
        _ => in_directory(error),
    };
    let mut writer =
        Spread::new(&tree.client, &tree.context, directory, &options).map_err(&about)?;
    let progress = Progress::start(spread.quiet);
    for path in inputs(&spread.files) {
        let mut input = open(path)?;
        let is_known = input.bytes > 0;
        progress.found(input.bytes);
        progress.at(path.display().to_string());
        let mut records = Records::new(record, options.batch_bytes);
        while let Some(bytes) =
            records.next(&mut *input.from).map_err(|failure| failure.about(path.display()))?
        {
            writer.write(bytes).map_err(&about)?;
            if !is_known {
                progress.found(bytes.len() as u64);
            }
            progress.done(bytes.len() as u64);
        }
    }
    let fragments = writer.finish().map_err(&about)?;
    progress.finish();
    tell(&fragments, started.elapsed().as_secs_f64(), spread.json)
}

/// The rank of this process in its job; 0 if it is in none.
fn rank() -> u32 {
    member(0, 0).map_or(0, |member| member.rank.0)
}

fn directory(tree: &RemoteTree, path: &[u8]) -> Done<FileId> {
    use crate::files::tree::Tree;
    if tree.stat(path, true)?.is_none() {
        match tree.make_dir(path, 0o755) {
            // Another writer made it at the same time.
            Err(_) if tree.stat(path, true)?.is_some() => {}
            made => made?,
        }
    }
    let attr = tree.attr(path, true)?;
    match attr.kind {
        FileKind::Directory => Ok(attr.file),
        _ => Err(tree.about(path)(ErrorKind::NotDirectory.into())),
    }
}

fn inputs(files: &[PathBuf]) -> Vec<&Path> {
    match files.is_empty() {
        true => vec![Path::new("-")],
        false => files.iter().map(PathBuf::as_path).collect(),
    }
}

struct Input {
    from: Box<dyn Read>,
    /// The number of bytes, as far as it is known in advance.
    bytes: u64,
}

fn open(path: &Path) -> Done<Input> {
    if path == Path::new("-") {
        return Ok(Input { from: Box::new(stdin().lock()), bytes: 0 });
    }
    let file = File::open(path).map_err(|e| Failure::file(path, e))?;
    let bytes = file.metadata().map_or(0, |meta| meta.len());
    Ok(Input { from: Box::new(file), bytes })
}

/// How an input is divided into records.
#[derive(Clone, Copy, Debug)]
enum Record {
    Line,
    Bytes(usize),
}

impl Record {
    /// How many of these bytes are whole records.
    fn whole(self, bytes: &[u8]) -> usize {
        match self {
            Self::Line => bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1),
            Self::Bytes(each) => bytes.len() - bytes.len() % each,
        }
    }
}

/// Reads an input in whole records, as many at a time as are available.
struct Records {
    record: Record,
    /// The records returned last, and the beginning of the next one.
    left: Vec<u8>,
    read_bytes: usize,
}

impl Records {
    /// Reads at most `batch_bytes` at a time.
    fn new(record: Record, batch_bytes: usize) -> Self {
        Self { record, left: Vec::new(), read_bytes: batch_bytes.clamp(1, MAX_READ_BYTES) }
    }

    fn next(&mut self, from: &mut dyn Read) -> Done<Option<&[u8]>> {
        let given = self.record.whole(&self.left);
        self.left.drain(..given);
        loop {
            if self.left.len() > MAX_RECORD_BYTES {
                let what = "a line of more than 64 MiB: give the size of records by --record";
                return Err(Failure::new(what));
            }
            let before = self.left.len();
            self.left.resize(before + self.read_bytes, 0);
            let read = loop {
                match from.read(&mut self.left[before..]) {
                    Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                    read => break read.map_err(|e| Failure::new(e.to_string()))?,
                }
            };
            self.left.truncate(before + read);
            if read == 0 {
                return self.last();
            }
            let whole = self.record.whole(&self.left);
            if whole > 0 {
                return Ok(Some(&self.left[..whole]));
            }
        }
    }

    /// Returns the bytes after the last whole record. A last line without an end gets one, so that
    /// the first line of the next input does not continue it.
    fn last(&mut self) -> Done<Option<&[u8]>> {
        match (self.record, self.left.is_empty()) {
            (_, true) => Ok(None),
            (Record::Line, false) => {
                self.left.push(b'\n');
                Ok(Some(&self.left))
            }
            (Record::Bytes(each), false) => {
                let what = format!("{} bytes are left behind its last record", self.left.len());
                Err(Failure::new(what).hint(format!("its size is no multiple of {each}")))
            }
        }
    }
}

fn tell(fragments: &[Fragment], seconds: f64, as_json: bool) -> Done {
    let total: u64 = fragments.iter().map(|fragment| fragment.bytes).sum();
    if as_json {
        let one = |f: &Fragment| json!({"name": f.name, "target": f.target.0, "bytes": f.bytes});
        let all: Vec<_> = fragments.iter().map(one).collect();
        return print_json(&json!({"fragments": all, "bytes": total, "seconds": seconds}));
    }
    let mut targets = BTreeMap::<u32, (u64, u64)>::new();
    for fragment in fragments {
        let (files, bytes) = targets.entry(fragment.target.0).or_default();
        (*files, *bytes) = (*files + 1, *bytes + fragment.bytes);
    }
    let mut table = Table::new(&["TARGET", "FRAGMENTS", "BYTES", "SHARE"]);
    for (target, (files, bytes)) in &targets {
        let share = format!("{:.1}%", *bytes as f64 * 100.0 / total.max(1) as f64);
        table.row(vec![target.to_string(), files.to_string(), human_size(*bytes), share]);
    }
    let speed = human_size((total as f64 / seconds.max(1e-6)) as u64);
    print(&format!(
        "{}{} in {} fragments, {seconds:.1} s, {speed}/s\n",
        table.render(),
        human_size(total),
        fragments.len()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(record: Record, mut from: &[u8]) -> Done<Vec<Vec<u8>>> {
        let (mut records, mut found) = (Records::new(record, 1 << 20), Vec::new());
        while let Some(bytes) = records.next(&mut from)? {
            found.push(bytes.to_vec());
        }
        Ok(found)
    }

    /// Returns only a few bytes with each read.
    struct Slow<'a>(&'a [u8], usize);

    impl Read for Slow<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let most = self.1.min(buffer.len());
            self.0.read(&mut buffer[..most])
        }
    }

    #[test]
    fn no_line_is_cut_and_the_last_one_gets_its_end() {
        assert_eq!(all(Record::Line, b"a\nbc\nd").unwrap(), [&b"a\nbc\n"[..], b"d\n"]);
        assert_eq!(all(Record::Line, b"").unwrap(), Vec::<Vec<u8>>::new());
        let text = b"one\ntwo\n\nthree\n";
        for most in 1..10 {
            let mut records = Records::new(Record::Line, 1 << 20);
            let (mut from, mut found) = (Slow(text, most), Vec::new());
            while let Some(bytes) = records.next(&mut from).unwrap() {
                assert_eq!(bytes.last(), Some(&b'\n'));
                found.extend_from_slice(bytes);
            }
            assert_eq!(found, text);
        }
    }

    #[test]
    fn records_of_a_size_are_whole_and_what_is_left_is_an_error() {
        assert_eq!(all(Record::Bytes(3), b"abcdef").unwrap(), [b"abcdef"]);
        assert!(all(Record::Bytes(3), b"abcd").unwrap_err().message.contains("1 bytes are left"));
    }
}
