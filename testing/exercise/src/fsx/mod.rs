//! Random calls on one file, through one or several mounts in turn, and on an array of bytes. A
//! call ends before the next one begins. So every mount must see it: every read returns the bytes
//! written last, every `fstat` the size, and times never go back.

mod file;
pub mod model;

use crate::Outcome;
use file::{Done, OpenFile};
use model::{Model, Op};
use std::fmt::Write as _;
use std::path::PathBuf;

/// Lines of the log in a failure message.
const LOG_LINES: usize = 400;

/// Parameters of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Seed that repeats the steps.
    pub seed: u64,
    /// Largest size of the file, bytes.
    pub max_file: u64,
    /// Largest range of one call, bytes.
    pub max_call: u64,
    /// Whether writes through `mmap` must be seen by other mounts before `msync`. The same mount
    /// must always see them.
    pub unsynced_maps: bool,
}

impl Options {
    /// The usual sizes.
    pub fn new(seed: u64) -> Self {
        Self { seed, max_file: 2 << 20, max_call: 150_000, unsynced_maps: false }
    }
}

/// The result of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Number of calls made.
    pub steps: u64,
    /// Number of calls that the file system does not support (`EOPNOTSUPP`).
    pub refused: u64,
}

/// Runs while `more`, called with the number of steps, returns true. The file is created, and
/// removed unless something is wrong.
pub fn run(
    dirs: &[PathBuf],
    name: &str,
    options: &Options,
    mut more: impl FnMut(u64) -> bool,
) -> Outcome<Report> {
    let mut run = Run::start(dirs, name, options)?;
    let result = (|| {
        while more(run.report.steps) {
            run.step()?;
        }
        run.compare_everything()
    })();
    result.map_err(|why| run.complain(&why))?;
    let path = run.path(0);
    std::fs::remove_file(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(run.report)
}

struct Run<'a> {
    dirs: &'a [PathBuf],
    name: &'a str,
    options: &'a Options,
    rng: fastrand::Rng,
    model: Model,
    files: Vec<OpenFile>,
    mtime: (i64, i64),
    log: Vec<String>,
    report: Report,
}

impl<'a> Run<'a> {
    fn start(dirs: &'a [PathBuf], name: &'a str, options: &'a Options) -> Outcome<Self> {
        let first = dirs.first().ok_or("no directory")?;
        let path = first.join(name);
        std::fs::write(&path, "").map_err(|e| format!("{}: {e}", path.display()))?;
        let files = dirs.iter().map(|d| OpenFile::open(&d.join(name))).collect::<Outcome<_>>()?;
        Ok(Self {
            dirs,
            name,
            options,
            rng: fastrand::Rng::with_seed(options.seed),
            model: Model::new(options.max_file, options.max_call),
            files,
            mtime: (i64::MIN, 0),
            log: Vec::new(),
            report: Report::default(),
        })
    }

    fn path(&self, mount: usize) -> PathBuf {
        self.dirs[mount].join(self.name)
    }

    fn step(&mut self) -> Outcome {
        let mount = self.rng.usize(..self.files.len());
        let mut op = self.model.choose(&mut self.rng);
        if let Op::MapWrite { sync, .. } = &mut op {
            *sync |= self.files.len() > 1 && !self.options.unsynced_maps;
        }
        let number = self.report.steps;
        self.report.steps += 1;
        self.log.push(format!("{number}: mount {mount}: {op:?}"));
        // The data identifies the step that wrote it.
        let data = model::contents(self.options.seed ^ number, op.data_len());
        match self.files[mount].perform(&op, &data)? {
            Done::Refused => {
                self.report.refused += 1;
                if let Some(line) = self.log.last_mut() {
                    line.push_str(" (not supported)");
                }
                return Ok(());
            }
            Done::Yes => self.model.apply(&op, &data),
            Done::Read(bytes) => self.model.check_read(&op, &bytes)?,
            Done::Found(at) => self.model.check_seek(&op, at)?,
        }
        let observer = self.rng.usize(..self.files.len());
        self.check_attributes(observer)
    }

    fn check_attributes(&mut self, mount: usize) -> Outcome {
        let (size, mtime) = self.files[mount].attributes()?;
        let want = self.model.bytes().len() as u64;
        if size != want {
            return Err(format!("mount {mount}: size is {size}, not {want}"));
        }
        if mtime < self.mtime {
            return Err(format!(
                "mount {mount}: mtime went back from {:?} to {mtime:?}",
                self.mtime
            ));
        }
        self.mtime = mtime;
        Ok(())
    }

    /// Reads the whole file through every mount, through the open file and a newly opened one.
    fn compare_everything(&mut self) -> Outcome {
        for mount in 0..self.files.len() {
            self.check_attributes(mount)?;
            let whole = Op::Read { at: 0, len: self.model.bytes().len() as u64 + 1 };
            for again in [false, true] {
                if again {
                    self.files[mount] = OpenFile::open(&self.path(mount))?;
                }
                if let Done::Read(bytes) = self.files[mount].perform(&whole, &[])? {
                    let checked = self.model.check_read(&whole, &bytes);
                    checked.map_err(|e| format!("in the end, mount {mount}: {e}"))?;
                }
            }
        }
        Ok(())
    }

    fn complain(&self, why: &str) -> String {
        let mut text = format!(
            "{why}\nseed {}, step {}, file {} in {} mounts; the steps:\n",
            self.options.seed,
            self.report.steps,
            self.name,
            self.dirs.len()
        );
        let from = self.log.len().saturating_sub(LOG_LINES);
        if from > 0 {
            let _ = writeln!(text, "({from} earlier steps are left out)");
        }
        for line in &self.log[from..] {
            let _ = writeln!(text, "  {line}");
        }
        let _ = writeln!(text, "failed: {why}");
        text
    }
}
