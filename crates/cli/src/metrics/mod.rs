//! Serves the counters of this daemon to Prometheus (`docs/metrics.md`).
//!
//! Invariant: the daemon never waits for a client of its metrics.

mod http;
mod process;

use crate::failure::{Done, Failure};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};
use weir_metrics::Page;
use weir_metrics::names::BUILD_INFO;

/// The longest to wait for the metrics of another daemon, in all.
const PATIENCE: Duration = Duration::from_secs(1);
/// How many bytes of another daemon's metrics are read.
const FIRST_BYTES: usize = 2048;

/// Parses an address for serving metrics.
pub fn parse(address: &str) -> Done<SocketAddr> {
    address.parse().map_err(|_| {
        Failure::new(format!("metrics = '{address}': not an address and a port"))
            .hint("such as 127.0.0.1:7800 or [::1]:7800")
    })
}

/// Whether a daemon of Weir serves metrics at an address of this machine.
pub fn are_at(address: &str) -> bool {
    let ask = || -> Option<bool> {
        let deadline = Instant::now() + PATIENCE;
        // Zero would mean no timeout.
        let left =
            || Some(deadline.saturating_duration_since(Instant::now())).filter(|t| !t.is_zero());
        let address: SocketAddr = address.parse().ok()?;
        let mut stream = TcpStream::connect_timeout(&address, left()?).ok()?;
        stream.set_write_timeout(Some(left()?)).ok()?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").ok()?;
        // The metrics begin with the name of the daemon. The answer of another program may be
        // endless, and come byte by byte.
        let (mut text, mut piece) = (Vec::new(), [0; FIRST_BYTES]);
        while text.len() < FIRST_BYTES {
            stream.set_read_timeout(Some(left()?)).ok()?;
            match stream.read(&mut piece).ok()? {
                0 => break,
                n => text.extend_from_slice(&piece[..n]),
            }
            if String::from_utf8_lossy(&text).contains(BUILD_INFO.name) {
                return Some(true);
            }
        }
        None
    };
    ask().unwrap_or(false)
}

/// Serves metrics from now on in threads of their own. Returns the address; `None` if listening
/// fails, which is logged, and the daemon continues without metrics.
pub fn serve(
    address: SocketAddr,
    daemon: &'static str,
    tell: impl Fn(&mut Page) -> bool + Send + 'static,
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that answers with this piece again and again, as long as the client listens.
    fn answers(piece: &'static [u8], pause: Duration) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            let mut stream = listener.accept().unwrap().0;
            while stream.write_all(piece).is_ok() {
                std::thread::sleep(pause);
            }
        });
        address
    }

    #[test]
    fn whoever_answers_byte_by_byte_is_not_waited_for_longer_than_in_all() {
        let begin = Instant::now();
        assert!(!are_at(&answers(b".", Duration::from_millis(50))));
        assert!(begin.elapsed() < 3 * PATIENCE, "{:?}", begin.elapsed());
        assert!(!are_at(&answers(b"no such thing ", Duration::ZERO)));
        assert!(are_at(&answers(b"# HELP weir_build_info which\n", Duration::from_millis(50))));
    }
}
