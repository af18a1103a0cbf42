//! Locations of a file's bytes.

use pyo3::prelude::*;
use weir_types::limits::MAX_FILE_BYTES;
use weir_wire::map::TargetState;

/// Consecutive bytes of a file on one disk.
#[pyclass(frozen, get_all, module = "weir")]
pub(crate) struct Location {
    /// First byte, in the file.
    offset: u64,
    /// Length, bytes.
    length: u64,
    /// Its copies, the first one first.
    copies: Vec<Py<Copy>>,
}

/// One copy of a range, with the present speed of its disk.
#[pyclass(frozen, get_all, module = "weir")]
pub(crate) struct Copy {
    /// Number of the target.
    target: u32,
    /// Name of the machine; empty: unknown.
    host: String,
    /// Address of its data server; empty: unknown.
    address: String,
    /// Whether the target serves.
    online: bool,
    /// Whether the copy is being made, and is not read yet.
    filling: bool,
    /// Whether the target has been much slower than others for some time.
    slow: bool,
    /// Bytes per second of the disk; `None` if nobody has read there lately.
    bytes_per_s: Option<u64>,
    /// Outstanding requests at the target.
    in_flight: u32,
}

#[pymethods]
impl Location {
    fn __repr__(&self, py: Python<'_>) -> String {
        let copies: Vec<String> = self.copies.iter().map(|copy| copy.get().__repr__()).collect();
        let _ = py;
        format!(
            "weir.Location(offset={}, length={}, copies=[{}])",
            self.offset,
            self.length,
            copies.join(", ")
        )
    }
}

#[pymethods]
impl Copy {
    fn __repr__(&self) -> String {
        let Self { target, host, online, .. } = self;
        let online = if *online { "True" } else { "False" };
        format!("weir.Copy(target={target}, host={host:?}, online={online})")
    }
}

/// Converts a location for Python.
pub(crate) fn location(py: Python<'_>, found: weir_client::Location) -> PyResult<Location> {
    let copy = |copy: weir_client::LocatedCopy| {
        let place = &copy.place;
        let shown = Copy {
            target: place.target.0,
            host: place.host.clone(),
            address: place.address.clone(),
            online: place.state == TargetState::Online,
            filling: copy.is_filling,
            slow: place.slow,
            bytes_per_s: place.bytes_per_s,
            in_flight: place.in_flight,
        };
        Py::new(py, shown)
    };
    let copies = found.copies.into_iter().map(copy).collect::<PyResult<_>>()?;
    Ok(Location { offset: found.offset, length: found.len, copies })
}

/// A given length, or the rest of the file.
pub(crate) fn length_or_rest(length: Option<u64>) -> u64 {
    length.unwrap_or(MAX_FILE_BYTES)
}
