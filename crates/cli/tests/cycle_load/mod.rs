//! The loads that run while daemons are killed. Each is a process of its own:
//! the test binary, started again with the environment that a load looks for.

mod library_load;
mod mount_load;

pub use library_load::{LibraryLoad, verify};
pub use mount_load::MountLoad;

use crate::harness::again;
use std::path::Path;
use std::process::{Child, Stdio};

/// If this process was started as a load: runs it, and says so.
pub fn run_if_asked() -> bool {
    library_load::run_if_asked() || mount_load::run_if_asked()
}

/// Starts this test binary again, for one test.
fn start(variables: &[(&str, &Path)], log: &Path) -> Child {
    let stderr = std::fs::OpenOptions::new().create(true).append(true).open(log).unwrap();
    let mut command = again("cycles::load_process");
    for (name, value) in variables {
        command.env(name, value);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr).spawn().unwrap()
}
