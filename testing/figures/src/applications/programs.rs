//! The programs, what they read, and how each is started as processes that read by mounts of their own.

use crate::args::Applications;
use crate::cluster::{Mount, said};
use crate::lab::Lab;
use crate::mirrored::layout;
use crate::programs::beside;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::io::{Error, Result};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Files that programs read: customers, records of them, numbers to sort, and transactions.
pub const INPUTS: u64 = 4;
const CUSTOMERS: &str = "customers";
const RECORDS: &str = "records";
const UNSORTED: &str = "unsorted";
const SALES: &str = "sales";
/// Where the processes of a job tell each other what they did.
const WORK: &str = "work";
/// A line of the first two.
const LINE_BYTES: u64 = 838;
const COPY_BYTES: u64 = 1 << 20;

/// What is read, and where programs put what they have found.
pub struct Inputs {
    /// Bytes of each.
    sizes: BTreeMap<&'static str, u64>,
    dir: PathBuf,
    /// Each is a job of its own.
    runs: Cell<u32>,
}

impl Inputs {
    /// Makes the inputs, and copies them to files that are striped over half of the disks and have
    /// their second copies on the other half.
    pub fn make(lab: &Lab, plan: &Applications) -> Result<Self> {
        let dir = lab.place("inputs");
        fs::create_dir(&dir)?;
        generate(&dir, plan.size)?;
        let layout = layout(2, plan.disks as usize / 2);
        let layout: Vec<&str> = layout.iter().map(String::as_str).collect();
        let mount = lab.cluster.mount(0, lab.place("w"), "rw")?;
        let mut sizes = BTreeMap::new();
        for name in [CUSTOMERS, RECORDS, UNSORTED, SALES] {
            lab.cluster.make_file(name, &layout)?;
            let input = dir.join(name);
            sizes.insert(name, fs::metadata(&input)?.len());
            lab.copy(text(&input)?, &mount.path().join(name), COPY_BYTES)?;
            fs::remove_file(input)?;
        }
        Ok(Self { sizes, dir, runs: Cell::new(0) })
    }

    /// Bytes of the files that a program reads.
    pub fn bytes(&self, program: &str) -> u64 {
        let files: &[&str] = match program {
            "grep" | "match" => &[CUSTOMERS, RECORDS],
            "sort" => &[UNSORTED],
            _ => &[SALES],
        };
        files.iter().filter_map(|name| self.sizes.get(name)).sum()
    }

    /// A process for each mount, or one that has readers, or starts the others.
    pub fn commands(&self, program: &str, mounts: &[Mount]) -> Result<Vec<Command>> {
        self.runs.set(self.runs.get() + 1);
        fs::create_dir_all(self.dir.join(WORK))?;
        let processes = mounts.iter().enumerate();
        match program {
            "grep" => processes
                .map(|(rank, mount)| {
                    let mut command = self.of_job("weir-grep", (rank, mounts.len()))?;
                    let files = [CUSTOMERS, RECORDS].map(|name| mount.path().join(name));
                    command.arg("HIGH STREET").args(files);
                    Ok(command)
                })
                .collect(),
            "sort" => processes
                .map(|(rank, mount)| {
                    let mut command = self.of_job("weir-sort", (rank, mounts.len()))?;
                    command.arg(mount.path().join(UNSORTED));
                    Ok(command)
                })
                .collect(),
            "mining" => {
                let mut command = beside("weir-mining")?;
                command.args(["run", SALES, "--passes", "1"]).env_remove("SIO_FILES");
                for (n, mount) in mounts.iter().enumerate() {
                    match n {
                        0 => command.current_dir(mount.path()),
                        _ => command.args(["--via", &format!("env -C {}", text(mount.path())?)]),
                    };
                }
                command.stdin(Stdio::null()).stdout(Stdio::null());
                Ok(vec![command])
            }
            "match" => {
                let mount = mounts.first().ok_or_else(|| Error::other("no mount"))?;
                let mut command = beside("weir-match")?;
                command.args(["run", RECORDS, CUSTOMERS, "--readers", "4", "--hinted", "--files"]);
                command.arg(format!("plain:{}", text(mount.path())?));
                command.stdin(Stdio::null()).stdout(Stdio::null());
                Ok(vec![command])
            }
            _ => Err(Error::other(format!("there is no program {program}"))),
        }
    }

    /// One of the processes of a job, which have what they write beside each other on this machine.
    fn of_job(&self, name: &str, (rank, ranks): (usize, usize)) -> Result<Command> {
        let mut command = beside(name)?;
        let job = format!("run{}", self.runs.get());
        command.env("WEIR_JOB", &job).env("WEIR_RANK", rank.to_string());
        command.env("WEIR_RANKS", ranks.to_string());
        command.args(["--read", "shares", "--output"]).arg(self.dir.join("out"));
        command.arg("--work").arg(self.dir.join(WORK));
        command.stdin(Stdio::null()).stdout(Stdio::null());
        Ok(command)
    }

    /// Removes what a program has written.
    pub fn clean(&self) -> Result<()> {
        for entry in fs::read_dir(&self.dir)? {
            let path = entry?.path();
            if path.is_dir() { fs::remove_dir_all(path)? } else { fs::remove_file(path)? }
        }
        Ok(())
    }
}

fn generate(dir: &Path, size: u64) -> Result<()> {
    let within = |program: &str, words: &[&str]| {
        let mut command = beside(program)?;
        command.current_dir(dir).env_remove("SIO_FILES").args(words);
        said(&mut command)
    };
    let lines = (size / LINE_BYTES).to_string();
    within("weir-match", &["generate", CUSTOMERS, RECORDS, "--count", &lines])?;
    let bytes = size.to_string();
    within("weir-sort", &["--generate", &bytes, UNSORTED])?;
    within("weir-mining", &["generate", SALES, "--size", &bytes])?;
    Ok(())
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().ok_or_else(|| Error::other("a path that is not UTF-8"))
}
