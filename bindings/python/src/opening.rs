//! How files are opened and created.

use crate::problem::{plain, value};
use pyo3::PyResult;
use weir_types::LayoutSpec;
use weir_wire::Rights;

/// How a file is opened.
#[derive(Clone, Copy)]
pub(crate) struct Mode {
    pub(crate) rights: Rights,
    pub(crate) create: bool,
    pub(crate) exclusive: bool,
    pub(crate) truncate: bool,
}

impl Mode {
    /// Parses a mode of `open`. Appends go through `File::append`.
    pub(crate) fn parse(said: &str) -> PyResult<Self> {
        let letters: String = said.chars().filter(|letter| *letter != 'b').collect();
        let (way, rights) = match letters.strip_suffix('+') {
            Some(way) => (way, Rights::READ_WRITE),
            None if letters == "r" => ("r", Rights::READ),
            None => (&*letters, Rights::WRITE),
        };
        let (create, exclusive, truncate) = match way {
            "r" => (false, false, false),
            "w" => (true, false, true),
            "x" => (true, true, false),
            "a" => (true, false, false),
            _ => {
                let what = format!("mode {said:?}: it is r, w, x or a, and + to read and write");
                return Err(value(what));
            }
        };
        Ok(Self { rights, create, exclusive, truncate })
    }
}

/// A striped layout; `None`: the default.
pub(crate) fn spec(unit: u32, count: u16, copies: u8) -> PyResult<Option<LayoutSpec>> {
    if (unit, count, copies) == (0, 0, 0) {
        return Ok(None);
    }
    let spec = LayoutSpec { stripe_unit_bytes: unit, count, copies, ..LayoutSpec::default() };
    weir_layout::check_spec(&spec).map_err(plain)?;
    Ok(Some(spec))
}

/// The umask of this process.
pub(crate) fn umask() -> u16 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let umask = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    umask.and_then(|umask| u16::from_str_radix(umask.trim(), 8).ok()).unwrap_or(0o022)
}
