//! Finds the cluster that a program means and connects to it, for the command line and for the
//! bindings of other languages.
//!
//! ```no_run
//! let choice = weir_connect::Choice::from_environment();
//! let client = choice.connect("my program")?;
//! let context = weir_client::Context::of(weir_connect::caller());
//! # Ok::<(), weir_connect::Problem>(())
//! ```

mod choice;
mod config;
mod credential;
mod problem;
pub mod secret;

pub use choice::{Choice, Found, absolute, check_name, home, named, state_home};
pub use config::{ConfigFile, MountDefaults, UpDefaults};
pub use credential::Credential;
pub use problem::Problem;

use weir_types::Caller;

/// The name under which a program appears in a cluster. Process id and version come first, because
/// a long name is cut.
pub fn program_name(name: &str) -> String {
    format!("[{} {}] {name}", std::process::id(), env!("CARGO_PKG_VERSION"))
}

/// The user who runs this program, for calls in that user's name.
pub fn caller() -> Caller {
    let groups = rustix::process::getgroups().unwrap_or_default();
    Caller {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        groups: groups.into_iter().map(|g| g.as_raw()).collect(),
    }
}
