//! Reads all copies of a set's members, computes the parities and writes them, on all disks at the
//! same time. Each member has a thread of its own; then each target compares its other copies.

use crate::candidate::Candidate;
use crate::copy::Copy;
use crate::durable::Unnamed;
use crate::failure::{Done, Failure};
use crate::place::is_copy;
use crate::reading::{Stream, at_once, on_each};
use crate::stream::{PIECE_BYTES, Step, Watch, hash};
use crate::tree::Tree;
use blake3::{Hash, Hasher};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;
use std::sync::mpsc::Receiver;
use std::thread::scope;
use weir_layout::set::SetCode;
use weir_types::TargetId;

/// A member, and its path for messages.
type Input = (File, PathBuf);

/// A parity, and the hash of what was written.
type Output = (Unnamed, Hasher);

/// The result of reading and writing a set.
pub struct Made {
    /// The hash of each member, as it was encoded.
    pub hashes: Vec<Hash>,
    /// The state of each copy of each member.
    pub seen: BTreeMap<(usize, TargetId), Done<Seen>>,
}

/// The state of a copy of a member.
pub struct Seen {
    /// The hash of the copy; `None` for the copy that was encoded.
    pub hash: Option<Hash>,
    /// Whether the copy is unchanged and, if it stays, durable.
    pub is_kept: bool,
}

/// Work on one target, or on no particular target.
enum Job<'a, 'scope> {
    /// Computes the parities of all members and makes them durable.
    Encode(Vec<Stream<'scope>>, &'a mut [Output]),
    /// Waits until a member was read to its end, and makes it durable.
    Keep(usize, &'a File, Receiver<()>),
    /// Reads another copy, and makes it durable if it stays.
    Compare(usize, bool),
}

enum Answer {
    Encoded(Result<Vec<Hash>, (usize, Failure)>),
    Seen((usize, TargetId), Done<Seen>),
}

/// Reads the members of a set from `inputs`, writes their parities to `outputs`, and makes the
/// parities and the copies that stay durable. Returns which member could not be read, if any.
pub fn make(
    tree: &Tree,
    code: SetCode,
    members: &[(Candidate, Vec<TargetId>)],
    (inputs, outputs): (&[Input], &mut [Output]),
    watch: Watch<'_>,
) -> Done<Result<Made, (usize, Failure)>> {
    let longest = members.iter().map(|(candidate, _)| candidate.len).max().unwrap_or(0);
    let answers = scope(|scope| {
        let mut work: BTreeMap<Option<TargetId>, Vec<(TargetId, Job<'_, '_>)>> = BTreeMap::new();
        let mut add = |target, job| work.entry(Some(target)).or_default().push((target, job));
        let mut streams = Vec::new();
        for (i, ((_, targets), (file, path))) in members.iter().zip(inputs).enumerate() {
            let (stream, end) = Stream::begin(scope, (file, path), longest);
            streams.push(stream);
            add(targets[0], Job::Keep(i, file, end));
        }
        for (i, (candidate, targets)) in members.iter().enumerate() {
            for target in candidate.copies.keys().filter(|target| **target != targets[0]) {
                add(*target, Job::Compare(i, targets.contains(target)));
            }
        }
        work.insert(None, vec![(TargetId::NONE, Job::Encode(streams, outputs))]);
        let run = |(target, job): (TargetId, Job<'_, '_>), watch: Watch<'_>| match job {
            Job::Encode(streams, outputs) => {
                encode(code, longest, (streams, outputs), watch).map(Answer::Encoded)
            }
            Job::Keep(i, file, end) => {
                // Nothing is sent: the channel closes when the reader ends.
                end.recv().unwrap_or_default();
                let kept = keep(tree, &members[i].0, target, file);
                let seen = kept.map(|is_kept| Seen { hash: None, is_kept });
                Ok(Answer::Seen((i, target), seen))
            }
            Job::Compare(i, stays) => {
                let seen = compare(tree, &members[i].0, (target, stays), watch);
                Ok(Answer::Seen((i, target), seen))
            }
        };
        on_each(work, run, watch)
    })?;
    let (mut hashes, mut seen) = (Vec::new(), BTreeMap::new());
    for answer in answers {
        match answer? {
            Answer::Encoded(Ok(all)) => hashes = all,
            Answer::Encoded(Err(failed)) => return Ok(Err(failed)),
            Answer::Seen(copy, what) => drop(seen.insert(copy, what)),
        }
    }
    Ok(Ok(Made { hashes, seen }))
}

/// Reads all members and writes their parities. Returns the hashes of the members, or which member
/// could not be read.
fn encode(
    code: SetCode,
    longest: u64,
    (streams, outputs): (Vec<Stream<'_>>, &mut [Output]),
    watch: Watch<'_>,
) -> Done<Result<Vec<Hash>, (usize, Failure)>> {
    let code = code.code().map_err(|e| Failure::other(e.to_string()))?;
    let mut made = vec![vec![0; PIECE_BYTES]; outputs.len()];
    let mut at = 0;
    while at < longest {
        let len = PIECE_BYTES.min((longest - at) as usize);
        let mut pieces = Vec::with_capacity(streams.len());
        for (i, stream) in streams.iter().enumerate() {
            match stream.next() {
                Ok(piece) => pieces.push(piece),
                Err(failure) => return Ok(Err((i, failure))),
            }
            watch(Step::Read(pieces[i].len() as u64))?;
        }
        let mut slices: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
        slices.resize(code.members(), &[]);
        let mut parities: Vec<&mut [u8]> = made.iter_mut().map(|piece| &mut piece[..len]).collect();
        code.encode(&slices, &mut parities).map_err(|e| Failure::other(e.to_string()))?;
        for ((file, hasher), piece) in outputs.iter_mut().zip(&made) {
            file.write(&piece[..len])?;
            hasher.update(&piece[..len]);
        }
        at += len as u64;
    }
    at_once(&*outputs, |(file, _)| file.sync())?;
    Ok(Ok(streams.into_iter().map(Stream::hash).collect()))
}

fn compare(
    tree: &Tree,
    candidate: &Candidate,
    (target, stays): (TargetId, bool),
    watch: Watch<'_>,
) -> Done<Seen> {
    let (mut file, path) = open(tree, &candidate.path, target)?;
    let hash = Some(hash(&mut file, &path, watch)?.0);
    let is_kept = !stays || keep(tree, candidate, target, &file)?;
    Ok(Seen { hash, is_kept })
}

/// Makes a copy durable. Returns whether it is unchanged since it was looked at.
fn keep(tree: &Tree, candidate: &Candidate, target: TargetId, file: &File) -> Done<bool> {
    let place = tree.file(&candidate.path, target)?;
    let synced = file.sync_all().and_then(|()| place.sync_name()).and_then(|()| file.metadata());
    let meta = synced.map_err(|e| Failure::file(&place.path(), e))?;
    let copy = candidate.copies[&target];
    Ok(Copy::of(&meta) == copy && is_copy(&place, &copy))
}

/// Opens a copy of a file. Also returns its path, for messages.
pub fn open(tree: &Tree, file: &str, target: TargetId) -> Done<(File, PathBuf)> {
    let place = tree.file(file, target)?;
    let file = place.open().map_err(|e| Failure::file(&place.path(), e))?;
    Ok((file, place.path()))
}
