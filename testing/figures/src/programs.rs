//! Programs of ours beside this one.

use std::env;
use std::ffi::OsString;
use std::io::Result;
use std::process::Command;

/// A program that stands beside this one, and finds itself by its name.
pub fn beside(name: &str) -> Result<Command> {
    let programs = env::current_exe()?.parent().map(ToOwned::to_owned).unwrap_or_default();
    let mut command = Command::new(programs.join(name));
    let mut path: OsString = programs.into();
    path.push(":");
    path.push(env::var_os("PATH").unwrap_or_default());
    command.env("PATH", path);
    Ok(command)
}
