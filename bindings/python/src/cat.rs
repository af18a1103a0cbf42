//! Reading ranges of many files in one call.

use crate::client::Client;
use crate::copying::refuse_others;
use crate::parallel::in_parallel;
use crate::problem::about;
use crate::ranges::{self, Want};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use pyo3::{Bound, ffi};
use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use weir_client::{Context, File};
use weir_types::Result;
use weir_wire::Rights;

/// Maximum number of files that are open at once.
const OPEN_AT_ONCE: usize = 256;

/// A range in fsspec's form: `None` is the beginning or the end of the file, and negative numbers
/// count from its end.
pub(crate) type Range = (PathBuf, Option<i64>, Option<i64>);

/// Index of the range, its offset, and the buffer that it is read into.
type Part<'py> = (usize, u64, Blank<'py>);

/// The result of one range.
type Got<'py> = PyResult<Bound<'py, PyBytes>>;

/// Reads all ranges; each file is opened once.
pub(crate) fn ranges<'py>(
    py: Python<'py>,
    client: &Client,
    all: &[Range],
    threads: usize,
) -> PyResult<Vec<Got<'py>>> {
    let session = client.session(py)?;
    let mut by_path: Vec<(&PathBuf, Vec<usize>)> = Vec::new();
    let mut known: HashMap<&PathBuf, usize> = HashMap::new();
    for (range, (path, ..)) in all.iter().enumerate() {
        let at = *known.entry(path).or_insert_with(|| {
            by_path.push((path, Vec::new()));
            by_path.len() - 1
        });
        by_path[at].1.push(range);
    }
    let mut got: Vec<Option<Got<'py>>> = all.iter().map(|_| None).collect();
    for group in by_path.chunks(OPEN_AT_ONCE) {
        let paths: Vec<&[u8]> = group.iter().map(|(path, _)| path.as_os_str().as_bytes()).collect();
        let (library, ctx) = (&session.client, &session.ctx);
        let opened = py.detach(|| in_parallel(paths, threads, |path| open(library, ctx, path)));
        let mut files: Vec<(File, Vec<Part<'py>>)> = Vec::new();
        for ((path, wanted), file) in group.iter().zip(opened) {
            match file {
                Ok(file) => {
                    let size = file.size();
                    let blank = |range: &usize| {
                        let (offset, len) = within(all[*range].1, all[*range].2, size);
                        Ok((*range, offset, Blank::new(py, len)?))
                    };
                    let blanks = wanted.iter().map(blank).collect::<PyResult<_>>()?;
                    files.push((file, blanks));
                }
                Err(error) => {
                    for range in wanted {
                        got[*range] = Some(Err(about(path.as_os_str().as_bytes())(error.clone())));
                    }
                }
            }
        }
        let mut wants = Vec::new();
        for (file, blanks) in &mut files {
            for (range, offset, blank) in blanks {
                let want = Want { range: *range, file, offset: *offset, dest: blank.bytes() };
                wants.push(want);
            }
        }
        let read = py.detach(|| ranges::read(ctx, wants, all.len(), threads));
        for (range, _, Blank(bytes)) in files.into_iter().flat_map(|(_, blanks)| blanks) {
            let cut = |len: &usize| match *len == bytes.as_bytes().len() {
                true => bytes.clone(),
                // The file was truncated meanwhile.
                false => PyBytes::new(py, &bytes.as_bytes()[..*len]),
            };
            let path = all[range].0.as_os_str().as_bytes();
            let result = read[range].as_ref().map(cut).map_err(Clone::clone);
            got[range] = Some(result.map_err(about(path)));
        }
    }
    Ok(got.into_iter().flatten().collect())
}

fn open(client: &weir_client::Client, ctx: &Context, path: &[u8]) -> Result<File> {
    let attr = client.resolve(ctx, path, true)?;
    refuse_others(&attr)?;
    Ok(client.open(ctx, attr.file, Rights::READ)?.0)
}

/// Offset and length of a range of a file of this size.
fn within(start: Option<i64>, end: Option<i64>, size: u64) -> (u64, usize) {
    let place = |at: i64| match u64::try_from(at) {
        Ok(at) => at.min(size),
        Err(_) => size.saturating_sub(at.unsigned_abs()),
    };
    let start = start.map_or(0, place);
    let end = end.map_or(size, place);
    (start, end.saturating_sub(start) as usize)
}

/// A new bytes object that no other code can see yet.
struct Blank<'py>(Bound<'py, PyBytes>);

impl<'py> Blank<'py> {
    fn new(py: Python<'py>, len: usize) -> PyResult<Self> {
        PyBytes::new_with(py, len, |_| Ok(())).map(Self)
    }

    /// Its bytes, which must be written before other code can see the object.
    fn bytes(&mut self) -> &mut [u8] {
        let len = self.0.as_bytes().len();
        if len == 0 {
            // The empty object is shared.
            return &mut [];
        }
        // SAFETY: the object is new, and longer than the objects that Python shares. No other
        // reference to it exists while the slice does.
        unsafe {
            let bytes = ffi::PyBytes_AsString(self.0.as_ptr());
            std::slice::from_raw_parts_mut(bytes.cast(), len)
        }
    }
}
