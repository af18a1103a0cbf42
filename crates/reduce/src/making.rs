//! All copies of the members of a set are read, and its parities computed and written, by all
//! disks at once: each member by a thread of its own, then the other copies of each target.

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

/// What came of it.
pub struct Made {
    /// Of each member, as it was encoded.
    pub hashes: Vec<Hash>,
    /// What each copy of each member is like.
    pub seen: BTreeMap<(usize, TargetId), Done<Seen>>,
}

/// What a copy of a member is like.
pub struct Seen {
    /// Of its bytes; none of the copy that was encoded.
    pub hash: Option<Hash>,
    /// It is durable, and still what was looked at; or it goes.
    pub is_kept: bool,
}

/// What is to be done on a target, or beside all of them.
enum Job<'a, 'scope> {
    /// The parities of all members, and these durable.
    Encode(Vec<Stream<'scope>>, &'a mut [Output]),
    /// A member that was read to its end is made durable.
    Keep(usize, &'a File, Receiver<()>),
    /// Another copy is read, and made durable if it stays.
    Compare(usize, bool),
}

enum Answer {
    Encoded(Result<Vec<Hash>, (usize, Failure)>),
    Seen((usize, TargetId), Done<Seen>),
}

/// Reads the members of a set from `inputs`, writes their parities to `outputs`, and makes
/// those durable and what is to stay; returns which member could not be read, if one could not.
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
                // Nothing is sent: it ends with the reader.
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

/// Reads all members and writes their parities; returns the hashes of the members, or which
/// one could not be read.
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

/// Makes a copy durable; whether it is still what was looked at.
fn keep(tree: &Tree, candidate: &Candidate, target: TargetId, file: &File) -> Done<bool> {
    let place = tree.file(&candidate.path, target)?;
    let synced = file.sync_all().and_then(|()| place.sync_name()).and_then(|()| file.metadata());
    let meta = synced.map_err(|e| Failure::file(&place.path(), e))?;
    let copy = candidate.copies[&target];
    Ok(Copy::of(&meta) == copy && is_copy(&place, &copy))
}

/// Opens a copy of a file; for messages also its path.
pub fn open(tree: &Tree, file: &str, target: TargetId) -> Done<(File, PathBuf)> {
    let place = tree.file(file, target)?;
    let file = place.open().map_err(|e| Failure::file(&place.path(), e))?;
    Ok((file, place.path()))
}
