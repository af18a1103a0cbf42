//! The part of `weir scrub` that compares parities with the columns that they are of.

use crate::check::snapshot::Paths;
use crate::check::spool::Spool;
use crate::failure::Done;
use crate::progress::Progress;
use crate::text::human_size;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use weir_client::{Client, Context, Unequal};
use weir_metaserver::audit::Fact;
use weir_types::{Error, ErrorKind, FileId};
use weir_wire::Rights;

/// The most findings, and the most failures, that are listed. All are counted.
const MAX_LISTED: usize = 10_000;

/// What the comparison has found.
#[derive(Default)]
pub struct Parities {
    /// Files whose parities were compared.
    files: u64,
    /// Bytes that were read of columns and parities.
    bytes: u64,
    /// Ranges that differ: how many, and the first of them.
    wrong: u64,
    unequal: Vec<(FileId, Unequal)>,
    /// Files that were not compared: how many, and the first of them with the reason.
    failed: u64,
    failures: Vec<(FileId, Error)>,
}

/// Compares the parities of all files that the facts know. `limit` is in bytes of each target in a
/// second.
pub fn compare(
    client: &Client,
    spool: &mut Spool,
    limit: Option<u64>,
    quiet: bool,
) -> Done<Parities> {
    let (progress, begun) = (Progress::start(quiet, 0), Instant::now());
    // Each target has one object of a set, so it gives what is read of each object.
    let (mut found, mut of_each) = (Parities::default(), 0_u64);
    for part in spool.parts() {
        let mut files = BTreeSet::new();
        spool.read(part, |fact| {
            if let Fact::Segments { file, page, .. } = fact
                && page.segments.iter().any(|segment| segment.is_coded())
            {
                files.insert(file);
            }
        })?;
        for file in files {
            let bytes = found.bytes;
            let mut read = 0;
            let mut told = |object_bytes: u64, objects: usize| {
                read += object_bytes * objects as u64;
                of_each += object_bytes;
                progress.say(|| format!("parities: {} compared", human_size(bytes + read)));
                if let Some(limit) = limit {
                    let due = Duration::from_secs_f64(of_each as f64 / limit as f64);
                    std::thread::sleep(due.saturating_sub(begun.elapsed()));
                }
            };
            found.compare_file(client, file, &mut told);
        }
    }
    progress.finish();
    Ok(found)
}

/// Whether a file was removed meanwhile.
fn is_gone(client: &Client, file: FileId) -> bool {
    client.getattr(&Context::root(), file).is_err_and(|error| error.kind == ErrorKind::NotFound)
}

impl Parities {
    fn compare_file(&mut self, client: &Client, file: FileId, told: &mut dyn FnMut(u64, usize)) {
        let ctx = Context::root();
        let compared = client.open(&ctx, file, Rights::READ).and_then(|(open, _)| {
            let compared = open.compare_parities(&ctx, told);
            open.close(&ctx).and(compared)
        });
        match compared {
            Ok(compared) => {
                self.files += u64::from(compared.segments > 0);
                self.bytes += compared.bytes;
                self.wrong += compared.unequal.len() as u64;
                let room = MAX_LISTED.saturating_sub(self.unequal.len());
                let listed = compared.unequal.into_iter().take(room);
                self.unequal.extend(listed.map(|unequal| (file, unequal)));
            }
            Err(_) if is_gone(client, file) => {}
            Err(error) => {
                self.failed += 1;
                if self.failures.len() < MAX_LISTED {
                    self.failures.push((file, error));
                }
            }
        }
    }

    /// Whether all was compared, and nothing differs.
    pub fn is_clean(&self) -> bool {
        self.wrong == 0 && self.failed == 0
    }

    /// How many ranges differ.
    pub fn wrong(&self) -> u64 {
        self.wrong
    }

    /// Whether some of it was not compared.
    pub fn has_failures(&self) -> bool {
        self.failed > 0
    }

    /// The files that are named.
    pub fn named(&self) -> impl Iterator<Item = FileId> + '_ {
        let unequal = self.unequal.iter().map(|(file, _)| *file);
        unequal.chain(self.failures.iter().map(|(file, _)| *file))
    }

    /// How much was compared, for the summary; nothing if no file has parities.
    pub fn summary(&self) -> String {
        match self.files {
            0 => String::new(),
            files => format!(", parities of {files} files compared"),
        }
    }

    /// A line for each finding and failure.
    pub fn text(&self, paths: &Paths) -> String {
        let mut text = String::new();
        for (file, Unequal { segment, parity, range }) in &self.unequal {
            text += &format!(
                "{}: parity {} of segment {segment}, bytes {}-{}: differs from what its columns \
                 give\n",
                paths.shown(*file),
                parity + 1,
                range.start,
                range.end - 1
            );
        }
        for (file, error) in &self.failures {
            text += &format!("{}: parities not compared: {error}\n", paths.shown(*file));
        }
        let unlisted = self.wrong + self.failed - (self.unequal.len() + self.failures.len()) as u64;
        if unlisted > 0 {
            text += &format!("{unlisted} more findings of parities are not listed\n");
        }
        if self.wrong > 0 {
            text += "`weir setlayout --reduce none FILE`, and then `--reduce` with its code, makes \
                     parities anew from the columns\n";
        }
        text
    }

    /// The same for programs.
    pub fn json(&self, paths: &Paths) -> Value {
        let unequal = self.unequal.iter().map(|(file, of)| {
            json!({
                "file": file.0,
                "path": paths.path(*file),
                "segment": of.segment.0,
                "parity": of.parity + 1,
                "offset": of.range.start,
                "length": of.range.end - of.range.start,
            })
        });
        let failures = self.failures.iter().map(|(file, error)| {
            json!({ "file": file.0, "path": paths.path(*file), "failure": error.to_string() })
        });
        json!({
            "files": self.files,
            "bytes": self.bytes,
            "findings": self.wrong,
            "unequal": unequal.collect::<Vec<_>>(),
            "not_compared": self.failed,
            "failures": failures.collect::<Vec<_>>(),
        })
    }
}
