//! As much of HTTP/1.1 as it takes to answer `GET /metrics`, and no more.
//!
//! A few threads take connections, one at a time each: that bounds them; more wait in the kernel.
//! Whoever does not send a request, or does not take the answer, is left after [`PATIENCE`].

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Connections that are served at a time.
const THREADS: usize = 4;
/// The longest that a connection may last.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest request.
const MAX_REQUEST_BYTES: usize = 8 << 10;
/// After a failure to accept, as when there are no descriptors left.
const PAUSE: Duration = Duration::from_millis(500);
const STACK_BYTES: usize = 256 << 10;
/// The type of a page of metrics.
const PAGE: &str = "text/plain; version=0.0.4; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";

/// Answers until the process ends. `page`: `None` if there is nothing to say just now.
pub fn serve(
    listener: TcpListener,
    page: impl Fn() -> Option<String> + Send + Sync + 'static,
) -> io::Result<()> {
    let (listener, page) = (Arc::new(listener), Arc::new(page));
    for _ in 0..THREADS {
        let (listener, page) = (Arc::clone(&listener), Arc::clone(&page));
        let work = move || {
            loop {
                match listener.accept() {
                    // Who goes away early has no answer.
                    Ok((stream, _)) => drop(answer(&stream, PATIENCE, &*page)),
                    Err(error) => {
                        tracing::debug!("metrics: cannot accept a connection: {error}");
                        thread::sleep(PAUSE);
                    }
                }
            }
        };
        thread::Builder::new().name("weir-metrics".into()).stack_size(STACK_BYTES).spawn(work)?;
    }
    Ok(())
}

fn answer(
    stream: &TcpStream,
    patience: Duration,
    page: &dyn Fn() -> Option<String>,
) -> io::Result<()> {
    let until = Instant::now() + patience;
    let request = receive(stream, until)?;
    let (status, kind, body) = match meant(&request) {
        Ok(()) => match page() {
            Some(text) => ("200 OK", PAGE, text),
            None => ("503 Service Unavailable", TEXT, "not serving, or too busy\n".to_owned()),
        },
        Err(status) => (status, TEXT, format!("{status}: GET /metrics is all there is\n")),
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n"
    );
    let body = if request.starts_with(b"HEAD ") { "" } else { body.as_str() };
    send(stream, &[head.as_bytes(), body.as_bytes()].concat(), until)
}

/// Whether the page is meant; else the status that says no.
fn meant(request: &[u8]) -> Result<(), &'static str> {
    let line = request.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let mut words = line.split_whitespace();
    match (words.next(), words.next(), words.next()) {
        (Some("GET" | "HEAD"), Some(target), Some(version)) if version.starts_with("HTTP/1.") => {
            match target.split('?').next() {
                Some("/metrics") => Ok(()),
                _ => Err("404 Not Found"),
            }
        }
        (Some(_), Some(_), Some(version)) if version.starts_with("HTTP/") => {
            Err("405 Method Not Allowed")
        }
        _ => Err("400 Bad Request"),
    }
}

/// The head of a request.
fn receive(mut stream: &TcpStream, until: Instant) -> io::Result<Vec<u8>> {
    let mut request = Vec::new();
    let mut piece = [0; 1024];
    while !ends(&request) {
        if request.len() > MAX_REQUEST_BYTES {
            return Err(ErrorKind::InvalidData.into());
        }
        stream.set_read_timeout(Some(left(until)?))?;
        match stream.read(&mut piece) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(length) => request.extend_from_slice(&piece[..length]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(request)
}

fn ends(request: &[u8]) -> bool {
    request.windows(4).any(|four| four == b"\r\n\r\n")
        || request.windows(2).any(|two| two == b"\n\n")
}

fn send(mut stream: &TcpStream, mut bytes: &[u8], until: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.set_write_timeout(Some(left(until)?))?;
        match stream.write(bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(length) => bytes = bytes.get(length..).unwrap_or_default(),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is answered to a request, and how `answer` ended.
    fn ask(request: &[u8], page: Option<&str>) -> (String, io::Result<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.write_all(request).unwrap();
        let (stream, _) = listener.accept().unwrap();
        let page = page.map(str::to_owned);
        let done = answer(&stream, Duration::from_millis(300), &move || page.clone());
        drop(stream);
        let mut text = String::new();
        // What came after the request makes the kernel cut the connection off.
        let _ = client.read_to_string(&mut text);
        (text, done)
    }

    #[test]
    fn one_page_is_answered_and_nothing_else() {
        let good = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
        let (text, done) = ask(good.as_bytes(), Some("weir_a 1\n"));
        done.unwrap();
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.contains(PAGE), "{text}");
        assert!(
            text.ends_with("Content-Length: 9\r\nConnection: close\r\n\r\nweir_a 1\n"),
            "{text}"
        );
        let head = good.replace("GET", "HEAD");
        assert!(ask(head.as_bytes(), Some("weir_a 1\n")).0.ends_with("close\r\n\r\n"));
        assert!(ask(good.as_bytes(), None).0.starts_with("HTTP/1.1 503 "));
        for (request, status) in [
            ("GET / HTTP/1.1\r\n\r\n", "404"),
            ("GET /metricsx HTTP/1.0\r\n\r\n", "404"),
            ("POST /metrics HTTP/1.1\r\n\r\n", "405"),
            ("GET /metrics HTTP/2\r\n\r\n", "405"),
            ("\x16\x03\x01\n\n", "400"),
        ] {
            let (text, _) = ask(request.as_bytes(), Some("x"));
            assert!(text.starts_with(&format!("HTTP/1.1 {status} ")), "{request:?}: {text}");
        }
    }

    #[test]
    fn who_says_nothing_or_too_much_or_takes_nothing_is_left_in_time() {
        let begun = Instant::now();
        let (text, silent) = ask(b"GET /metrics", Some("x"));
        assert!(text.is_empty() && silent.is_err());
        let (_, endless) = ask(&vec![b'a'; 3 * MAX_REQUEST_BYTES], Some("x"));
        assert_eq!(endless.unwrap_err().kind(), ErrorKind::InvalidData);

        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let (stream, _) = listener.accept().unwrap();
        // More than the kernel takes for somebody who reads nothing.
        let page = || Some("x".repeat(64 << 20));
        assert!(answer(&stream, Duration::from_millis(300), &page).is_err());
        assert!(begun.elapsed() < PATIENCE);
    }
}
