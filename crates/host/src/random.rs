//! Random bytes.

use crate::simulated;
use std::io;

/// Fresh random bytes, fit for keys and nonces.
///
/// # Errors
/// Those of the kernel if it has no random bytes.
pub fn fill_random(bytes: &mut [u8]) -> io::Result<()> {
    if let Some(machine) = simulated::current() {
        machine.fill_random(bytes);
        return Ok(());
    }
    getrandom::fill(bytes)
        .map_err(|e| io::Error::other(format!("the kernel gives no random bytes: {e}")))
}
