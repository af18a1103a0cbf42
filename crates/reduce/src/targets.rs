//! The directories of a tree. Each has a number, which it keeps wherever it is mounted.

use crate::durable::{Instead, UNNAMED, Unnamed, make_directory};
use crate::failure::{Done, Failure, is_absent, is_unreadable};
use crate::place::Place;
use crate::record::STATE;
use rustix::fs::{FlockOperation, flock};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, Permissions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use weir_types::TargetId;

/// Maximum number of directories of a tree.
const MAX_TARGETS: usize = 1000;
const FIRST_LINE: &str = "weir-reduce 1";
/// The number is in two files, because nothing else can restore it.
const NUMBERS: [&str; 2] = ["target", "target-copy"];

/// The purpose of opening the directories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Reading only.
    Look,
    /// Encoding: directories without a number become new targets.
    Encode,
    /// Removal: directories without a number are refused.
    Remove,
    /// Repair: empty directories replace missing targets.
    Repair,
}

/// The directories by their numbers, locked against other commands while this value exists.
pub struct Targets {
    dirs: BTreeMap<TargetId, PathBuf>,
    /// Directories that have no number yet.
    fresh: Vec<PathBuf>,
    /// The id of the tree.
    tree: Option<String>,
    purpose: Purpose,
    locks: Vec<File>,
}

impl Targets {
    /// Opens and locks directories.
    pub fn open(given: &[PathBuf], purpose: Purpose) -> Done<Self> {
        if given.is_empty() || given.len() > MAX_TARGETS {
            return Err(Failure::other(format!("give 1 to {MAX_TARGETS} directories")));
        }
        check_apart(given)?;
        let mut locks = Vec::new();
        let mut tree: Option<(String, &Path)> = None;
        let mut dirs: BTreeMap<TargetId, PathBuf> = BTreeMap::new();
        let mut fresh = Vec::new();
        for dir in given {
            let state = dir.join(STATE);
            let number = match is_state(&state)? {
                false => None,
                true => {
                    locks.extend(lock(&state, purpose)?);
                    read_number(dir, purpose)?
                }
            };
            let Some((name, number)) = number else {
                if purpose == Purpose::Repair && !is_empty(dir)? {
                    let why = "is no directory of this tree, and not empty: only an empty one \
                               takes the place of one that is lost";
                    return Err(Failure::other(format!("{}: {why}", dir.display())));
                }
                if purpose == Purpose::Remove {
                    let why = "is no directory of this tree: if it is to be one, run `weir reduce \
                               encode` first, or `repair` if it is in place of one that is lost";
                    return Err(Failure::other(format!("{}: {why}", dir.display())));
                }
                fresh.push(dir.clone());
                continue;
            };
            if let Some((first, of)) = &tree
                && *first != name
            {
                let (one, other) = (of.display(), dir.display());
                let why = "give the directories of one tree";
                return Err(Failure::other(format!("{one} and {other} are of two trees: {why}")));
            }
            tree.get_or_insert((name, dir.as_path()));
            if let Some(twice) = dirs.insert(number, dir.clone()) {
                let (one, other) = (twice.display(), dir.display());
                let what = format!("both say that they are target {number}");
                let why = "one is a copy of the other, or the same: leave it out";
                return Err(Failure::other(format!("{one} and {other} {what}: {why}")));
            }
        }
        let tree = tree.map(|(name, _)| name);
        Ok(Self { dirs, fresh, tree, purpose, locks })
    }

    /// Numbers the directories that have no number. `known`: targets that records mention. Returns
    /// the directories that replace a lost target.
    pub fn number(&mut self, mut known: BTreeSet<TargetId>) -> Done<Vec<(TargetId, PathBuf)>> {
        known.extend(self.dirs.keys());
        let lost: Vec<TargetId> =
            known.iter().copied().filter(|target| !self.dirs.contains_key(target)).collect();
        if self.purpose == Purpose::Encode
            && let ([first, ..], [dir, ..]) = (&lost[..], &self.fresh[..])
        {
            return Err(Failure::other(format!(
                "target {first} was not given, and {} has no number: give the directory of the \
                 target, or run `weir reduce repair` with an empty one if it is lost",
                dir.display()
            )));
        }
        let places = if self.purpose == Purpose::Repair { lost } else { Vec::new() };
        let above = known.last().map_or(0, |last| last.0 + 1);
        let numbers = places.iter().copied().chain((above..).map(TargetId));
        let name = match &self.tree {
            Some(name) => name.clone(),
            None => new_name()?,
        };
        let mut replaced = Vec::new();
        for (dir, number) in std::mem::take(&mut self.fresh).into_iter().zip(numbers) {
            if self.purpose != Purpose::Look {
                let state = dir.join(STATE);
                if !is_state(&state)? {
                    make_directory(&state)?;
                    self.locks.extend(lock(&state, self.purpose)?);
                }
                write_number(&dir, &name, number)?;
            }
            if places.contains(&number) {
                replaced.push((number, dir.clone()));
            }
            self.dirs.insert(number, dir);
        }
        if self.purpose != Purpose::Look {
            self.check_numbers()?;
        }
        Ok(replaced)
    }

    /// Refuses two paths that lead to the same directory, for example by a second mount.
    fn check_numbers(&self) -> Done {
        for (target, dir) in &self.dirs {
            if read_number(dir, Purpose::Look)?.is_none_or(|(_, number)| number != *target) {
                let why = "is another name of a directory that was given: leave it out";
                return Err(Failure::other(format!("{}: {why}", dir.display())));
            }
        }
        Ok(())
    }

    /// All directories with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (TargetId, &Path)> {
        self.dirs.iter().map(|(target, dir)| (*target, dir.as_path()))
    }

    /// The directory of a target, if it is among the given ones.
    pub fn dir(&self, target: TargetId) -> Option<&Path> {
        self.dirs.get(&target).map(PathBuf::as_path)
    }
}

/// Checks that all are directories and none is inside another.
fn check_apart(given: &[PathBuf]) -> Done {
    let mut seen: BTreeMap<PathBuf, &Path> = BTreeMap::new();
    for dir in given {
        if !dir.is_dir() {
            let why = "is no directory: give an empty one in place of one that is lost";
            return Err(Failure::other(format!("{}: {why}", dir.display())));
        }
        let whole = dir.canonicalize().map_err(|e| Failure::file(dir, e))?;
        if seen.insert(whole, dir).is_some() {
            return Err(Failure::other(format!("{} is given twice", dir.display())));
        }
    }
    for (whole, dir) in &seen {
        if let Some(outer) = whole.ancestors().skip(1).find_map(|above| seen.get(above)) {
            let (dir, outer) = (dir.display(), outer.display());
            let why = "leave out one of the two";
            return Err(Failure::other(format!("{dir} is inside {outer}: {why}")));
        }
    }
    Ok(())
}

/// Whether the state directory exists. Fails if another user owns it or can write to it.
fn is_state(state: &Path) -> Done<bool> {
    let meta = match std::fs::symlink_metadata(state) {
        Ok(meta) => meta,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(Failure::file(state, error)),
    };
    let user = rustix::process::geteuid().as_raw();
    if meta.is_dir() && meta.uid() == user && meta.mode() & 0o022 == 0 {
        return Ok(true);
    }
    let why = "it must be a directory of the user who runs this, in which nobody else can write";
    Err(Failure::other(format!("{}: {why}", state.display())))
}

/// Whether a directory is empty, apart from what a new file system and an interrupted command leave
/// there.
fn is_empty(dir: &Path) -> Done<bool> {
    let empty = |path: &Path| std::fs::read_dir(path).is_ok_and(|mut all| all.next().is_none());
    for entry in std::fs::read_dir(dir).map_err(|e| Failure::file(dir, e))? {
        let entry = entry.map_err(|e| Failure::file(dir, e))?;
        let is_new = entry.file_name() == "lost+found" && empty(&entry.path());
        if entry.file_name() != STATE && !is_new {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Locks the state directory, makes it private, and removes what an interrupted command left.
fn lock(state: &Path, purpose: Purpose) -> Done<Option<File>> {
    let path = state.join("lock");
    let (opened, how) = match purpose {
        Purpose::Look => (File::open(&path), FlockOperation::NonBlockingLockShared),
        Purpose::Encode | Purpose::Remove | Purpose::Repair => {
            let mut options = File::options();
            let options = options.create(true).truncate(false).write(true).mode(0o600);
            (options.open(&path), FlockOperation::NonBlockingLockExclusive)
        }
    };
    let file = match opened {
        Ok(file) => file,
        Err(error) if purpose == Purpose::Look && is_absent(&error) => return Ok(None),
        Err(error) => return Err(Failure::file(&path, error)),
    };
    match flock(&file, how) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let why = "is given twice, or another `weir reduce` works on it: wait for its end";
            return Err(Failure::other(format!("{}: {why}", state.display())));
        }
        Err(error) => return Err(Failure::file(&path, error)),
    }
    if purpose != Purpose::Look {
        let private = std::fs::set_permissions(state, Permissions::from_mode(0o700));
        private.map_err(|e| Failure::file(state, e))?;
        for name in names(state)?.into_iter().filter(|name| name.starts_with(UNNAMED)) {
            let path = state.join(name);
            std::fs::remove_file(&path).map_err(|e| Failure::file(&path, e))?;
        }
    }
    Ok(Some(file))
}

/// Reads the number of a directory. If one of its two files is missing or damaged, writes that file
/// again from the other.
fn read_number(dir: &Path, purpose: Purpose) -> Done<Option<(String, TargetId)>> {
    let state = dir.join(STATE);
    let mut read = Vec::new();
    for name in NUMBERS {
        let path = state.join(name);
        match std::fs::read(&path) {
            Ok(bytes) => read.push(parse_number(&bytes)),
            Err(error) if is_absent(&error) || is_unreadable(&error) => read.push(None),
            Err(error) => return Err(Failure::file(&path, error)),
        }
    }
    let known: BTreeSet<_> = read.iter().flatten().cloned().collect();
    if let [(name, number)] = known.iter().collect::<Vec<_>>()[..] {
        if purpose != Purpose::Look && read.iter().any(Option::is_none) {
            write_number(dir, name, *number)?;
        }
        return Ok(Some((name.clone(), *number)));
    }
    if names(&state)?.iter().all(|name| name == "lock" || name.starts_with(UNNAMED)) {
        return Ok(None);
    }
    let what = "does not say any more which target this is";
    let why = format!(
        "leave the directory out and give `repair` an empty one in its place; keep it until that \
         has ended, its files and the parities in its {STATE} may be good"
    );
    Err(Failure::other(format!("{} {what}: {why}", state.display())))
}

fn parse_number(bytes: &[u8]) -> Option<(String, TargetId)> {
    let lines: Vec<&str> = std::str::from_utf8(bytes).ok()?.lines().collect();
    let [FIRST_LINE, name, number] = lines[..] else { return None };
    let number = number.parse().ok().filter(|number: &u32| *number < 1 << 30)?;
    Some((name.to_owned(), TargetId(number)))
}

fn write_number(dir: &Path, name: &str, number: TargetId) -> Done {
    for (i, to) in (0..).zip(NUMBERS) {
        let mut file = Unnamed::begin(&dir.join(STATE), i)?;
        file.write(format!("{FIRST_LINE}\n{name}\n{number}\n").as_bytes())?;
        let place = Place::new(dir, format!("{STATE}/{to}"));
        file.name(&place, Instead::Anything, &mut |_| Ok(()))?;
    }
    Ok(())
}

fn new_name() -> Done<String> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|e| Failure::other(format!("no random bytes: {e}")))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The names in a directory, sorted. Names that are not UTF-8 are left out.
pub fn names(dir: &Path) -> Done<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(|e| Failure::file(dir, e))? {
        let entry = entry.map_err(|e| Failure::file(dir, e))?;
        names.extend(entry.file_name().into_string().ok());
    }
    names.sort_unstable();
    Ok(names)
}
