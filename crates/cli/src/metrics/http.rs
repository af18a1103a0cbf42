//! The part of HTTP/1.1 that is needed to answer `GET /metrics`.
//!
//! One thread serves a bounded number of connections and blocks on none of them. A connection is
//! closed if it has not sent a request and taken the answer within [`PATIENCE`]. If there are too
//! many connections, the oldest without a complete request is closed first.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, BufRead, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

/// The most connections at a time.
const MAX_CONNECTIONS: usize = 64;
/// The longest time of a connection.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest request, in bytes.
const MAX_REQUEST_BYTES: usize = 8 << 10;
/// The pause after a failure to accept or to wait, as when there are no descriptors left.
const PAUSE: Duration = Duration::from_millis(500);
const STACK_BYTES: usize = 256 << 10;
/// The content type of a page of metrics.
const PAGE: &str = "text/plain; version=0.0.4; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";

/// Answers requests until the process ends. `page` returns `None` if there is no page at the
/// moment.
pub fn serve(
    listener: TcpListener,
    page: impl Fn() -> Option<String> + Send + 'static,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let mut server = Server { listener, patience: PATIENCE, connections: Vec::new(), page };
    let work = move || {
        loop {
            server.turn();
        }
    };
    thread::Builder::new().name("weir-metrics".into()).stack_size(STACK_BYTES).spawn(work)?;
    Ok(())
}

struct Server<P> {
    listener: TcpListener,
    patience: Duration,
    /// The connections, oldest first.
    connections: Vec<Connection>,
    page: P,
}

impl<P: Fn() -> Option<String>> Server<P> {
    /// Waits until a connection is ready, and serves it.
    fn turn(&mut self) {
        if self.wait().is_err() {
            thread::sleep(PAUSE);
        }
        // Existing connections first: a new one may replace one that has waited.
        self.go_on();
        self.accept();
        self.go_on();
    }

    fn wait(&self) -> io::Result<()> {
        let mut fds = vec![PollFd::new(&self.listener, PollFlags::IN)];
        let wants =
            |it: &Connection| if it.answer.is_some() { PollFlags::OUT } else { PollFlags::IN };
        fds.extend(self.connections.iter().map(|it| PollFd::new(&it.stream, wants(it))));
        let first = self.connections.first();
        let left = first.map(|it| it.until.saturating_duration_since(Instant::now()));
        // A little later, so that the time limit of the connection is over at the check.
        let left = left.map(|left| left + Duration::from_millis(1));
        let timeout = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut fds, timeout.as_ref()) {
            Err(error) if error != rustix::io::Errno::INTR => Err(error.into()),
            _ => Ok(()),
        }
    }

    fn accept(&mut self) {
        // A limited number, so that a complete request is answered before its connection may be
        // closed for new ones.
        for _ in 0..MAX_CONNECTIONS / 2 {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                    return;
                }
                Err(e) if e.kind() == ErrorKind::ConnectionAborted => continue,
                Err(error) => {
                    tracing::debug!("metrics: cannot accept a connection: {error}");
                    return thread::sleep(PAUSE);
                }
            };
            if stream.set_nonblocking(true).is_err() {
                continue;
            }
            if self.connections.len() >= MAX_CONNECTIONS {
                let silent = self.connections.iter().position(|it| it.answer.is_none());
                self.connections.remove(silent.unwrap_or(0));
            }
            let until = Instant::now() + self.patience;
            self.connections.push(Connection { stream, until, request: Vec::new(), answer: None });
        }
    }

    /// Receives, answers and sends as much as is possible without blocking.
    fn go_on(&mut self) {
        let now = Instant::now();
        // A client that closes its connection early gets no answer.
        self.connections.retain_mut(|it| it.until > now && it.receive().is_ok());
        // One page serves all requests of this turn, because making it may take a while.
        let mut page = None;
        for it in self.connections.iter_mut().filter(|it| it.answer.is_none() && it.has_asked()) {
            let made = answer(&it.request, || page.get_or_insert_with(&self.page).clone());
            it.answer = Some(io::Cursor::new(made));
        }
        self.connections.retain_mut(|it| it.send().is_ok_and(|is_sent| !is_sent));
    }
}

struct Connection {
    stream: TcpStream,
    /// When the connection is closed.
    until: Instant,
    request: Vec<u8>,
    /// The answer, with the position up to which it was sent.
    answer: Option<io::Cursor<Vec<u8>>>,
}

impl Connection {
    /// Whether the head of a request is complete.
    fn has_asked(&self) -> bool {
        self.request.windows(4).any(|four| four == b"\r\n\r\n")
            || self.request.windows(2).any(|two| two == b"\n\n")
    }

    /// Receives what has come of the head of a request.
    fn receive(&mut self) -> io::Result<()> {
        let mut piece = [0; 1024];
        while self.answer.is_none() && !self.has_asked() {
            if self.request.len() > MAX_REQUEST_BYTES {
                return Err(ErrorKind::InvalidData.into());
            }
            match self.stream.read(&mut piece) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(length) => self.request.extend_from_slice(&piece[..length]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Sends as much as the connection accepts. Returns whether that was everything.
    fn send(&mut self) -> io::Result<bool> {
        let Some(answer) = &mut self.answer else { return Ok(false) };
        loop {
            let left = answer.fill_buf()?;
            if left.is_empty() {
                return Ok(true);
            }
            match self.stream.write(left) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(length) => answer.consume(length),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }
}

/// The answer to a request.
fn answer(request: &[u8], page: impl FnOnce() -> Option<String>) -> Vec<u8> {
    let (status, kind, body) = match meant(request) {
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
    [head.as_bytes(), body.as_bytes()].concat()
}

/// Checks that a request asks for the page. The error is an HTTP status.
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;

    /// A server of this page.
    fn serving(page: Option<&str>) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let page = page.map(str::to_owned);
        serve(listener, move || page.clone()).unwrap();
        address
    }

    /// The answer to a request.
    fn ask(address: SocketAddr, request: &[u8]) -> String {
        let mut client = TcpStream::connect(address).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        client.write_all(request).unwrap();
        let mut text = String::new();
        // Bytes after the request make the kernel reset the connection.
        if let Err(error) = client.read_to_string(&mut text) {
            assert_eq!(error.kind(), ErrorKind::ConnectionReset, "no answer");
        }
        text
    }

    const GOOD: &str = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";

    #[test]
    fn one_page_is_answered_and_nothing_else() {
        let address = serving(Some("weir_a 1\n"));
        let text = ask(address, GOOD.as_bytes());
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.contains(PAGE), "{text}");
        assert!(
            text.ends_with("Content-Length: 9\r\nConnection: close\r\n\r\nweir_a 1\n"),
            "{text}"
        );
        let head = GOOD.replace("GET", "HEAD");
        assert!(ask(address, head.as_bytes()).ends_with("close\r\n\r\n"));
        assert!(ask(serving(None), GOOD.as_bytes()).starts_with("HTTP/1.1 503 "));
        for (request, status) in [
            ("GET / HTTP/1.1\r\n\r\n", "404"),
            ("GET /metricsx HTTP/1.0\r\n\r\n", "404"),
            ("POST /metrics HTTP/1.1\r\n\r\n", "405"),
            ("GET /metrics HTTP/2\r\n\r\n", "405"),
            ("\x16\x03\x01\n\n", "400"),
        ] {
            let text = ask(address, request.as_bytes());
            assert!(text.starts_with(&format!("HTTP/1.1 {status} ")), "{request:?}: {text}");
        }
        assert_eq!(ask(address, &vec![b'a'; 3 * MAX_REQUEST_BYTES]), "");
    }

    #[test]
    fn who_says_nothing_or_takes_nothing_keeps_nobody_from_an_answer() {
        let address = serving(Some("weir_a 1\n"));
        let idle = |_| {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(b"GET /metrics").unwrap();
            stream
        };
        // Far more connections than are served at a time, all younger than the one that waits here.
        let silent: Vec<TcpStream> = (0..3 * MAX_CONNECTIONS).map(idle).collect();
        assert!(ask(address, GOOD.as_bytes()).contains(" 200 OK"));
        drop(silent);

        // More bytes than the kernel buffers for a client that reads nothing.
        let address = serving(Some(&"x".repeat(16 << 20)));
        let lazy = |_| {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(GOOD.as_bytes()).unwrap();
            stream
        };
        let lazy: Vec<TcpStream> = (0..8).map(lazy).collect();
        assert!(ask(address, GOOD.as_bytes()).contains(" 200 OK"));
        drop(lazy);
    }

    #[test]
    fn who_says_nothing_is_left_in_time() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.write_all(b"GET /metrics").unwrap();
        listener.set_nonblocking(true).unwrap();
        let patience = Duration::from_millis(50);
        let mut server =
            Server { listener, patience, connections: Vec::new(), page: || Some("x".to_owned()) };
        server.turn();
        assert_eq!(server.connections.len(), 1);
        while !server.connections.is_empty() {
            server.turn();
        }
        assert_eq!(client.read(&mut [0]).unwrap_or(0), 0);
    }
}
