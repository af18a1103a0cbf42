//! The directories of a tree, each with a number that it keeps wherever it is mounted.

use crate::durable::{UNNAMED, Unnamed, make_directories};
use crate::failure::{Done, Failure};
use crate::record::STATE;
use rustix::fs::{FlockOperation, flock};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use weir_types::TargetId;

/// Directories of a tree, at the most.
const MAX_TARGETS: usize = 1000;
const FIRST_LINE: &str = "weir-reduce 1";

/// The directories, by number. As long as this is there nobody else works on them.
pub struct Targets {
    dirs: BTreeMap<TargetId, PathBuf>,
    _locks: Vec<File>,
}

impl Targets {
    /// Opens directories. Those that have no number yet get those that are missing, in
    /// their order, and then new ones.
    pub fn open(given: &[PathBuf]) -> Done<Self> {
        if given.is_empty() || given.len() > MAX_TARGETS {
            return Err(Failure::other(format!("give 1 to {MAX_TARGETS} directories")));
        }
        let mut locks = Vec::new();
        let mut tree: Option<(String, &Path)> = None;
        let mut dirs: BTreeMap<TargetId, PathBuf> = BTreeMap::new();
        let mut fresh = Vec::new();
        for dir in given {
            if !dir.is_dir() {
                let why = "is no directory: give an empty one in place of one that is lost";
                return Err(Failure::other(format!("{}: {why}", dir.display())));
            }
            let state = dir.join(STATE);
            make_directories(&state)?;
            locks.push(lock(&state)?);
            remove_unnamed(&state)?;
            let Some((name, number)) = read_number(&state)? else {
                fresh.push(dir);
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
                let why = "one is a copy of the other, leave it out";
                return Err(Failure::other(format!("{one} and {other} are both {number}: {why}")));
            }
        }
        let name = match &tree {
            Some((name, _)) => name.clone(),
            None => new_name()?,
        };
        let mut numbers = (0..).map(TargetId);
        for dir in fresh {
            let number = numbers.find(|number| !dirs.contains_key(number));
            let number = number.ok_or_else(|| Failure::other("there are no more numbers"))?;
            write_number(&dir.join(STATE), &name, number)?;
            dirs.insert(number, dir.clone());
        }
        Ok(Self { dirs, _locks: locks })
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (TargetId, &Path)> {
        self.dirs.iter().map(|(target, dir)| (*target, dir.as_path()))
    }

    /// The directory of a target, if it was given.
    pub fn dir(&self, target: TargetId) -> Option<&Path> {
        self.dirs.get(&target).map(PathBuf::as_path)
    }
}

fn lock(state: &Path) -> Done<File> {
    let path = state.join("lock");
    let file = File::options().create(true).truncate(false).write(true).open(&path);
    let file = file.map_err(|e| Failure::file(&path, e))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let why = "is given twice, or another `weir reduce` works on it: wait for its end";
            Err(Failure::other(format!("{}: {why}", state.display())))
        }
        Err(error) => Err(Failure::file(&path, error)),
    }
}

fn remove_unnamed(state: &Path) -> Done {
    for entry in std::fs::read_dir(state).map_err(|e| Failure::file(state, e))? {
        let entry = entry.map_err(|e| Failure::file(state, e))?;
        if entry.file_name().to_string_lossy().starts_with(UNNAMED) {
            let path = entry.path();
            std::fs::remove_file(&path).map_err(|e| Failure::file(&path, e))?;
        }
    }
    Ok(())
}

fn read_number(state: &Path) -> Done<Option<(String, TargetId)>> {
    let path = state.join("target");
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Failure::file(&path, error)),
    };
    let lines: Vec<&str> = text.lines().collect();
    match lines[..] {
        [FIRST_LINE, name, number] if number.parse::<u32>().is_ok_and(|n| n < 1 << 30) => {
            Ok(Some((name.to_owned(), TargetId(number.parse().unwrap_or_default()))))
        }
        _ => Err(Failure::other(format!(
            "{}: it does not say which target this is: remove the directory's {STATE} and give it \
             as an empty one",
            path.display()
        ))),
    }
}

fn write_number(state: &Path, name: &str, number: TargetId) -> Done {
    let mut file = Unnamed::begin(state, 0)?;
    file.write(format!("{FIRST_LINE}\n{name}\n{number}\n").as_bytes())?;
    file.name(&state.join("target"), &mut |_| Ok(()))
}

fn new_name() -> Done<String> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|e| Failure::other(format!("no random bytes: {e}")))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
