//! What an experiment leaves: CSV files, and lines of PASS and FAIL.

use crate::plot;
use std::fs::{self, File};
use std::io::{BufWriter, Error, Result, Write};
use std::path::{Path, PathBuf};

/// The directory of an experiment's results.
pub struct Report {
    dir: PathBuf,
    verdicts: Vec<String>,
}

impl Report {
    /// What an earlier run left there is replaced.
    pub fn new(out: &Path, name: &str) -> Result<Self> {
        let dir = out.join(name);
        let named = |e: Error| Error::other(format!("{}: {e}", dir.display()));
        if dir.exists() {
            fs::remove_dir_all(&dir).map_err(named)?;
        }
        fs::create_dir_all(&dir).map_err(named)?;
        Ok(Self { dir, verdicts: Vec::new() })
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// A table with such a head; rows are written as they come, so that what was measured is
    /// there also if the experiment ends early.
    pub fn table(&self, name: &str, head: &str) -> Result<Table> {
        let mut file = BufWriter::new(File::create(self.path(name))?);
        writeln!(file, "{head}")?;
        Ok(Table { file })
    }

    /// Whether something is as it is to be.
    pub fn verdict(&mut self, passes: bool, what: &str) {
        let line = format!("{} {what}", if passes { "PASS" } else { "FAIL" });
        println!("{line}");
        self.verdicts.push(line);
    }

    /// Writes the verdicts, and the plots in the other format.
    pub fn finish(self) -> Result<()> {
        fs::write(self.dir.join("verdicts.txt"), self.verdicts.join("\n") + "\n")?;
        let mut lacks = None;
        for entry in fs::read_dir(&self.dir)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "svg") {
                lacks = lacks.or(plot::png(&path)?);
            }
        }
        lacks.iter().for_each(|what| println!("skipped: PNG needs {what}"));
        println!("results: {}", self.dir.display());
        Ok(())
    }
}

/// A CSV file.
pub struct Table {
    file: BufWriter<File>,
}

impl Table {
    /// Values without commas.
    pub fn row(&mut self, values: &[String]) -> Result<()> {
        writeln!(self.file, "{}", values.join(","))?;
        self.file.flush()
    }
}
