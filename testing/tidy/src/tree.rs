//! The files of a checkout, in memory.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::{fs, io};

/// Text files by their paths from the top of the repository.
#[derive(Debug, Default)]
pub struct Tree {
    /// Path, with `/`, to text.
    pub files: BTreeMap<String, String>,
}

impl Tree {
    /// Reads the sources and documents below `root` that git tracks, and the new ones that it does
    /// not ignore.
    ///
    /// # Errors
    ///
    /// If git does not answer, or a file cannot be read.
    pub fn read(root: &Path) -> io::Result<Tree> {
        let listed = Command::new("git")
            .arg("-C")
            .arg(root)
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .output()?;
        if !listed.status.success() {
            return Err(io::Error::other(String::from_utf8_lossy(&listed.stderr).into_owned()));
        }
        let mut files = BTreeMap::new();
        for path in String::from_utf8_lossy(&listed.stdout).split('\0') {
            // What is deleted in the work tree is still listed.
            if [".rs", ".md", ".toml"].iter().any(|end| path.ends_with(end))
                && root.join(path).is_file()
            {
                files.insert(path.to_owned(), fs::read_to_string(root.join(path))?);
            }
        }
        Ok(Tree { files })
    }

    /// The files whose names end in `end`.
    pub fn ending<'a>(&'a self, end: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.files
            .iter()
            .filter(move |(path, _)| path.ends_with(end))
            .map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// The folders of crates: those that have a `Cargo.toml` with a `src` beside it.
    pub fn crate_folders(&self) -> Vec<&str> {
        self.ending("/Cargo.toml")
            .map(|(path, _)| path.trim_end_matches("/Cargo.toml"))
            .filter(|folder| {
                let sources = format!("{folder}/src/");
                self.files
                    .range(sources.clone()..)
                    .next()
                    .is_some_and(|(path, _)| path.starts_with(&sources))
            })
            .collect()
    }
}
