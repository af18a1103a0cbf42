//! Properties of the host that servers and clients ask for.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use weir_types::{Error, ErrorKind, Result};

/// The name of this host.
pub fn host_name() -> String {
    weir_host::host_name()
}

/// Raises this process's limit of open descriptors to `wanted`, or as far as the hard limit allows.
/// Returns the resulting limit. A simulated machine has no limit.
pub fn raise_descriptor_limit(wanted: u64) -> u64 {
    if weir_host::net::is_simulated() {
        return wanted;
    }
    let limit = getrlimit(Resource::Nofile);
    let current = limit.current.unwrap_or(u64::MAX);
    if current >= wanted {
        return current;
    }
    let hard = limit.maximum.unwrap_or(u64::MAX);
    // An administrator's process may raise the hard limit too.
    let raised = Rlimit { current: Some(wanted), maximum: Some(hard.max(wanted)) };
    if setrlimit(Resource::Nofile, raised).is_ok() {
        return wanted;
    }
    let within = Rlimit { current: Some(hard.min(wanted)), maximum: limit.maximum };
    if setrlimit(Resource::Nofile, within).is_ok() { hard.min(wanted) } else { current }
}

/// Fresh random bytes for nonces.
///
/// Errors: `Io` if the kernel has none.
pub fn random_bytes<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    weir_host::fill_random(&mut bytes).map_err(|e| Error::new(ErrorKind::Io, e.to_string()))?;
    Ok(bytes)
}

/// Aborts the process if the thread that holds this panics. A process that has exited is noticed
/// and restarted; one that lacks a thread would leave its clients hanging. The string names the
/// thread. A simulated process is ended by its simulator, which reports the panic.
#[derive(Debug)]
pub struct AbortOnPanic(pub &'static str);

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() && !weir_host::net::is_simulated() {
            tracing::error!("{} has panicked: the process ends", self.0);
            std::process::abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_descriptor_limit_is_never_lowered() {
        let before = raise_descriptor_limit(16);
        assert!(before >= 16);
        assert!(raise_descriptor_limit(before) >= before);
        assert!(!host_name().is_empty());
    }
}
