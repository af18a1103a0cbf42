//! Reading the store in the server's own name.

use crate::ops::Fault;
use weir_metastore::{Engine, Key, Tx, Value, key_after};
use weir_types::{Error, Result};

/// Keys read at a time.
const PAGE: usize = 1024;

/// Calls `visit` for every key of a range, a page at a time.
pub(super) fn each(
    engine: &dyn Engine,
    mut start: Vec<u8>,
    end: &[u8],
    mut visit: impl FnMut(&Key, &Value) -> Result<()>,
) -> Result<()> {
    loop {
        let page = Tx::new(engine).range(&start, end, PAGE)?;
        for (key, value) in &page {
            visit(key, value)?;
        }
        match page.last() {
            Some((last, _)) if page.len() == PAGE => start = key_after(last).into_vec(),
            _ => return Ok(()),
        }
    }
}

/// Converts an error of the server's own transactions, which no request can get as a refusal.
pub(super) fn fault(fault: Fault) -> Error {
    match fault {
        Fault::Refused(error) => error,
        Fault::Engine(error) => error.into(),
    }
}
