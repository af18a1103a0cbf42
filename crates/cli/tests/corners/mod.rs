//! What is tried in a directory, and what came of it: a line for each call.

mod changes;
mod gone;
mod links;
mod names;
mod notices;
mod opened;
mod special;
mod unnamed;

use rustix::io::Errno;
use std::io::Result;
use std::path::Path;

/// All of it, in an empty directory.
pub fn everything(dir: &Path) -> Vec<String> {
    let mut log = Log::default();
    unnamed::unnamed(&mut log, dir);
    special::sockets(&mut log, dir);
    special::devices(&mut log, dir);
    special::attributes(&mut log, dir);
    special::times(&mut log, dir);
    special::birth(&mut log, dir);
    special::sizes(&mut log, dir);
    notices::leases(&mut log, dir);
    notices::inotify(&mut log, dir);
    names::bytes(&mut log, dir);
    names::dots(&mut log, dir);
    names::positions(&mut log, dir);
    names::depth(&mut log, dir);
    links::renames(&mut log, dir);
    links::many(&mut log, dir);
    links::handles(&mut log, dir);
    gone::directories(&mut log, dir);
    gone::files(&mut log, dir);
    gone::programs(&mut log, dir);
    gone::of_others(&mut log, dir);
    gone::by_descriptor(&mut log, dir);
    opened::programs(&mut log, dir);
    opened::listings(&mut log, dir);
    opened::capabilities(&mut log, dir);
    changes::all_times(&mut log, dir);
    changes::privileges(&mut log, dir);
    changes::privileges_of_others(&mut log, dir);
    log.0
}

/// What the superuser does with programs that have capabilities.
pub fn capabilities(dir: &Path) -> Vec<String> {
    let mut log = Log::default();
    opened::capabilities(&mut log, dir);
    log.0
}

#[derive(Default)]
pub struct Log(Vec<String>);

impl Log {
    /// What a call has found.
    pub fn found<T: std::fmt::Debug>(&mut self, what: &str, result: Result<T>) {
        self.0.push(match result {
            Ok(found) => format!("{what}: {found:?}"),
            Err(error) => match error.raw_os_error() {
                Some(code) => format!("{what}: {:?}", Errno::from_raw_os_error(code)),
                None => format!("{what}: {error}"),
            },
        });
    }

    /// Whether it was done.
    pub fn done<T>(&mut self, what: &str, result: Result<T>) {
        self.found(what, result.map(|_| "done"));
    }

    pub fn sys<T: std::fmt::Debug>(&mut self, what: &str, result: rustix::io::Result<T>) {
        self.found(what, result.map_err(std::io::Error::from));
    }

    /// The names in a directory.
    pub fn names(&mut self, dir: &Path) {
        let names = || -> Result<Vec<_>> {
            let mut names: Vec<_> =
                std::fs::read_dir(dir)?.map(|e| Ok(e?.file_name())).collect::<Result<_>>()?;
            names.sort();
            Ok(names)
        };
        self.found("names", names());
    }
}

/// Of a call of the C library.
pub fn checked(result: i32) -> Result<i32> {
    if result < 0 { Err(std::io::Error::last_os_error()) } else { Ok(result) }
}
