//! The name that this program gives when it connects, so that people can find the process.

use serde::Serialize;
pub use weir_connect::program_name as this;

/// A connected program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Program {
    /// The name, as in `weir mount /mnt`.
    pub name: String,
    /// The process number on the program's machine.
    pub pid: Option<u32>,
    /// The program's version of Weir.
    pub version: Option<String>,
}

impl Program {
    /// Parses the text with which a program identifies itself. Other programs may give no process
    /// and version.
    pub fn parse(text: &str) -> Self {
        let parts = text.strip_prefix('[').and_then(|rest| {
            let (about, name) = rest.split_once("] ")?;
            let (pid, version) = about.split_once(' ')?;
            Some((pid.parse().ok()?, version, name))
        });
        match parts {
            Some((pid, version, name)) => {
                Self { name: name.to_owned(), pid: Some(pid), version: Some(version.to_owned()) }
            }
            None => Self { name: text.to_owned(), pid: None, version: None },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_known_by_what_it_calls_itself() {
        let program = Program::parse(&this("weir mount /a] b"));
        assert_eq!(program.name, "weir mount /a] b");
        assert_eq!(program.pid, Some(std::process::id()));
        assert_eq!(program.version.as_deref(), Some(env!("CARGO_PKG_VERSION")));
        let other = Program::parse("[fun] program");
        assert_eq!((other.name.as_str(), other.pid), ("[fun] program", None));
    }
}
