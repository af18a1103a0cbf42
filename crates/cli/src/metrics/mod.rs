//! What this daemon counts, for Prometheus (`docs/metrics.md`).
//!
//! Invariant: whoever asks, and however they go about it, the daemon does not wait for them.

mod http;
mod process;

use crate::failure::{Done, Failure};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;
use weir_metrics::Page;
use weir_metrics::names::BUILD_INFO;

/// The longest to wait for another daemon's metrics,
const PATIENCE: Duration = Duration::from_secs(1);
/// and how much of them is looked at.
const FIRST_BYTES: u64 = 2048;

/// Reads an address at which metrics are to be served.
pub fn parse(address: &str) -> Done<SocketAddr> {
    address.parse().map_err(|_| {
        Failure::new(format!("metrics = '{address}': not an address and a port"))
            .hint("such as 127.0.0.1:7800 or [::1]:7800")
    })
}

/// Whether metrics of a daemon of ours can be had at an address of this machine.
pub fn are_at(address: &str) -> bool {
    let ask = || -> Option<bool> {
        let address: SocketAddr = address.parse().ok()?;
        let mut stream = TcpStream::connect_timeout(&address, PATIENCE).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").ok()?;
        let mut text = Vec::new();
        // They begin with who serves them; another program's answer may have no end.
        let _ = stream.take(FIRST_BYTES).read_to_end(&mut text);
        Some(String::from_utf8_lossy(&text).contains(BUILD_INFO.name))
    };
    ask().unwrap_or(false)
}

/// Serves metrics from now on, by threads of its own; `None`: nobody can listen there, which is
/// logged, and the daemon goes on without. Otherwise says where.
pub fn serve(
    address: SocketAddr,
    daemon: &'static str,
    tell: impl Fn(&mut Page) -> bool + Send + Sync + 'static,
) -> Option<SocketAddr> {
    let page = move || {
        let mut page = Page::default();
        let wire = weir_wire::frame::VERSION.to_string();
        page.family(&BUILD_INFO).number(&[daemon, env!("CARGO_PKG_VERSION"), &wire], 1);
        process::tell(&mut page);
        tell(&mut page).then(|| page.into_text())
    };
    let listen = || {
        let listener = TcpListener::bind(address)?;
        let bound = listener.local_addr()?;
        http::serve(listener, page).map(|()| bound)
    };
    match listen() {
        Ok(bound) => {
            tracing::info!("metrics are at http://{bound}/metrics");
            Some(bound)
        }
        Err(error) => {
            tracing::error!("metrics are not served: cannot listen on {address}: {error}");
            None
        }
    }
}
