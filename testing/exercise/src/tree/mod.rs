//! Random calls on a small tree of names: on a model, on a plain local directory, and through one
//! or several mounts in turn. All must return the same results, including errors, and must have the
//! same tree at the end.

mod disk;
mod model;
pub mod op;
pub mod snapshot;

use crate::Outcome;
pub use disk::Disk;
use model::Model;
use op::{Answer, Kind, Op, Said};
use snapshot::Snapshot;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

/// Number of calls between two comparisons of the whole tree.
const COMPARE_EVERY: u64 = 200;
/// Lines of the log in a failure message.
const LOG_LINES: usize = 400;

/// A directory that holds a tree, and the implementation of its calls.
pub trait Tree {
    /// Makes a call.
    fn perform(&self, op: &Op) -> Said;
    /// The whole tree.
    fn snapshot(&self) -> Outcome<Snapshot>;
}

/// Runs while `more`, called with the number of calls, returns true. Uses `name` in each of the
/// directories, and removes it at the end. `dirs` are mounts of one file system, `local` is another
/// one. Returns the number of calls.
pub fn run(
    dirs: &[PathBuf],
    local: &std::path::Path,
    name: &str,
    seed: u64,
    more: impl FnMut(u64) -> bool,
) -> Outcome<u64> {
    let first = dirs.first().ok_or("no directory")?;
    let root = first.join(name);
    fs::create_dir(&root).map_err(|e| format!("{}: {e}", root.display()))?;
    let tree = |dir: &PathBuf| Box::new(Disk::new(&dir.join(name))) as Box<dyn Tree>;
    let steps = run_over(dirs.iter().map(tree).collect(), local, name, seed, more)?;
    fs::remove_dir_all(&root).map_err(|e| format!("{}: {e}", root.display()))?;
    Ok(steps)
}

/// As [`run`], with other calls than system calls. `trees` are views of one empty directory with
/// mode 0700, each of a client of its own.
pub fn run_over(
    trees: Vec<Box<dyn Tree>>,
    local: &std::path::Path,
    name: &str,
    seed: u64,
    mut more: impl FnMut(u64) -> bool,
) -> Outcome<u64> {
    let root = local.join(name);
    fs::create_dir(&root).map_err(|e| format!("{}: {e}", root.display()))?;
    let mut run = Run {
        mounts: trees,
        local: Disk::new(&root),
        local_has_xattrs: false,
        model: Model::new(),
        rng: fastrand::Rng::with_seed(seed),
        log: Vec::new(),
        steps: 0,
    };
    run.local_has_xattrs = run.local.keeps_xattrs();
    let result = (|| {
        while more(run.steps) {
            run.step()?;
        }
        run.compare_everything()
    })();
    result.map_err(|why: String| run.complain(&why, seed))?;
    fs::remove_dir_all(&root).map_err(|e| format!("{}: {e}", root.display()))?;
    Ok(run.steps)
}

struct Run {
    mounts: Vec<Box<dyn Tree>>,
    local: Disk,
    local_has_xattrs: bool,
    model: Model,
    rng: fastrand::Rng,
    log: Vec<String>,
    steps: u64,
}

impl Run {
    fn step(&mut self) -> Outcome {
        let mount = self.rng.usize(..self.mounts.len());
        let op = op::choose(&mut self.rng);
        let want = self.model.perform(&op);
        let line = format!("{}: mount {mount}: {} -> {}", self.steps, short(&op), said(&want));
        self.log.push(line);
        self.steps += 1;
        let is_xattr =
            matches!(op, Op::SetXattr { .. } | Op::GetXattr { .. } | Op::RemoveXattr { .. });
        if self.local_has_xattrs || !is_xattr {
            let local = self.local.perform(&op);
            // Some file systems do not count subdirectories.
            if without_dir_links(local.clone()) != without_dir_links(want.clone()) {
                return Err(format!(
                    "the model is wrong: {}: local {}, model {}",
                    short(&op),
                    said(&local),
                    said(&want)
                ));
            }
        }
        let got = self.mounts[mount].perform(&op);
        if got != want {
            return Err(format!("{}: {}, not {}", short(&op), said(&got), said(&want)));
        }
        if self.steps.is_multiple_of(COMPARE_EVERY) {
            self.compare_everything()?;
        }
        Ok(())
    }

    fn compare_everything(&self) -> Outcome {
        let want = self.model.snapshot().map_err(|e| format!("the model: {e}"))?;
        for (number, mount) in self.mounts.iter().enumerate() {
            if let Some(differences) = want.differences(&mount.snapshot()?) {
                return Err(format!("mount {number}: {differences}"));
            }
        }
        if self.local_has_xattrs {
            let local = self.local.snapshot()?.without_links_of_directories();
            if let Some(differences) = want.without_links_of_directories().differences(&local) {
                return Err(format!("the local directory: {differences}"));
            }
        }
        Ok(())
    }

    fn complain(&self, why: &str, seed: u64) -> String {
        let mut text = format!("{why}\nseed {seed}, call {}; the calls:\n", self.steps);
        let from = self.log.len().saturating_sub(LOG_LINES);
        if from > 0 {
            let _ = writeln!(text, "({from} earlier calls are left out)");
        }
        for line in &self.log[from..] {
            let _ = writeln!(text, "  {line}");
        }
        let _ = writeln!(text, "failed: {why}");
        text
    }
}

fn without_dir_links(said: Said) -> Said {
    said.map(|answer| match answer {
        Answer::Attributes { kind: Kind::Dir, mode, size, .. } => {
            Answer::Attributes { kind: Kind::Dir, mode, links: 0, size }
        }
        other => other,
    })
}

fn short(op: &Op) -> String {
    match op {
        Op::Append { path, text } => format!("Append {{ {path:?}, {} bytes }}", text.len()),
        other => format!("{other:?}"),
    }
}

fn said(said: &Said) -> String {
    match said {
        Ok(Answer::Bytes(bytes)) if bytes.len() > 60 => format!("{} bytes", bytes.len()),
        Ok(answer) => format!("{answer:?}"),
        Err(e) => std::io::Error::from(*e).to_string(),
    }
}
