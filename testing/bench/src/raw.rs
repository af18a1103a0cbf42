//! Limits of the machine without Weir: plain TCP on loopback.

use crate::failure::{Done, Failure};
use crate::files::{Aligned, Prepared, next_random};
use crate::order::{BLOCK_BYTES, CALL_BYTES, Order, Work};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use std::fs::File;
use std::hint::black_box;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};
use weir_types::checksum::crc32c;

/// Maximum wait for a peer.
const PATIENCE: Duration = Duration::from_secs(60);

fn failed(what: &str) -> impl Fn(std::io::Error) -> Failure {
    move |e| Failure::system(what, e)
}

/// Prepares an order on sockets. A server returns its port.
pub fn prepare(order: Order) -> Done<(Prepared, Option<u16>)> {
    match order {
        Order::StreamSend { bytes, file, from } => {
            let (listener, port) = listen()?;
            let file = file
                .map(|path| File::open(&path).map_err(|e| Failure::file(&path, e)))
                .transpose()?;
            let run = move |buffer: &mut Aligned| {
                let (stream, _) = listener.accept().map_err(failed("accept"))?;
                send(stream, bytes, file.as_ref(), from, buffer.bytes())
            };
            Ok((Box::new(run), Some(port)))
        }
        Order::StreamReceive { port, bytes, crc } => {
            let stream = connect(port)?;
            let run = move |buffer: &mut Aligned| receive(stream, bytes, crc, buffer.bytes());
            Ok((Box::new(run), None))
        }
        Order::PingServe { request_bytes, reply_bytes, connections } => {
            let (listener, port) = listen()?;
            let run = move |buffer: &mut Aligned| {
                serve(&listener, connections, request_bytes, reply_bytes, buffer.bytes())
            };
            Ok((Box::new(run), Some(port)))
        }
        Order::PingAsk { ports, request_bytes, reply_bytes, ms, seed } => {
            let streams = ports.into_iter().map(connect).collect::<Done<Vec<_>>>()?;
            let run = move |buffer: &mut Aligned| {
                let sizes = (request_bytes, reply_bytes);
                ask(&streams, sizes, Duration::from_millis(ms), seed, buffer.bytes())
            };
            Ok((Box::new(run), None))
        }
        _ => Err(Failure::other("not an order on sockets")),
    }
}

fn listen() -> Done<(TcpListener, u16)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed("bind"))?;
    let port = listener.local_addr().map_err(failed("bind"))?.port();
    Ok((listener, port))
}

fn connect(port: u16) -> Done<TcpStream> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).map_err(failed("connect"))?;
    stream.set_nodelay(true).map_err(failed("nodelay"))?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(failed("timeout"))?;
    Ok(stream)
}

fn send(
    mut stream: TcpStream,
    bytes: u64,
    file: Option<&File>,
    from: u64,
    buffer: &mut [u8],
) -> Done<Work> {
    stream.set_write_timeout(Some(PATIENCE)).map_err(failed("timeout"))?;
    let mut done = 0;
    while done < bytes {
        let len = (bytes - done).min(CALL_BYTES as u64) as usize;
        if let Some(file) = file {
            file.read_exact_at(&mut buffer[..len], from + done).map_err(failed("pread"))?;
        }
        stream.write_all(&buffer[..len]).map_err(failed("send"))?;
        done += len as u64;
    }
    Ok(Work::default())
}

fn receive(mut stream: TcpStream, bytes: u64, crc: bool, buffer: &mut [u8]) -> Done<Work> {
    let mut work = Work::default();
    while work.bytes < bytes {
        let len = (bytes - work.bytes).min(CALL_BYTES as u64) as usize;
        let n = if crc {
            stream.read_exact(&mut buffer[..len]).map_err(failed("recv"))?;
            for block in buffer[..len].chunks(BLOCK_BYTES) {
                black_box(crc32c(block));
            }
            len
        } else {
            stream.read(&mut buffer[..len]).map_err(failed("recv"))?
        };
        if n == 0 {
            return Err(Failure::other("the sender ended early"));
        }
        work.bytes += n as u64;
        work.ops += 1;
    }
    Ok(work)
}

/// A connection of a ping server, and the received part of a request.
struct Peer {
    stream: TcpStream,
    pending: usize,
}

fn serve(
    listener: &TcpListener,
    connections: usize,
    request_bytes: usize,
    reply_bytes: usize,
    buffer: &mut [u8],
) -> Done<Work> {
    let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(|e| Failure::system("epoll", e))?;
    let mut peers = Vec::with_capacity(connections);
    for index in 0..connections {
        let (stream, _) = listener.accept().map_err(failed("accept"))?;
        stream.set_nodelay(true).map_err(failed("nodelay"))?;
        stream.set_nonblocking(true).map_err(failed("nonblocking"))?;
        epoll::add(&epoll, &stream, EventData::new_u64(index as u64), EventFlags::IN)
            .map_err(|e| Failure::system("epoll", e))?;
        peers.push(Some(Peer { stream, pending: 0 }));
    }
    let mut open = connections;
    let mut events = Vec::with_capacity(connections);
    let patience = rustix::time::Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
    while open > 0 {
        events.clear();
        let spare = rustix::buffer::spare_capacity(&mut events);
        let n =
            epoll::wait(&epoll, spare, Some(&patience)).map_err(|e| Failure::system("epoll", e))?;
        if n == 0 {
            return Err(Failure::other("nobody asks any more"));
        }
        for event in &events {
            let index = event.data.u64() as usize;
            let Some(slot) = peers.get_mut(index) else { continue };
            let Some(peer) = slot else { continue };
            if !answer(peer, request_bytes, reply_bytes, buffer)? {
                *slot = None;
                open -= 1;
            }
        }
    }
    Ok(Work::default())
}

/// Receives bytes and answers complete requests; `false` at the end.
fn answer(
    peer: &mut Peer,
    request_bytes: usize,
    reply_bytes: usize,
    buffer: &mut [u8],
) -> Done<bool> {
    match peer.stream.read(&mut buffer[..request_bytes - peer.pending]) {
        Ok(0) => return Ok(false),
        Ok(n) => peer.pending += n,
        Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(true),
        Err(e) if e.kind() == ErrorKind::ConnectionReset => return Ok(false),
        Err(e) => return Err(Failure::system("recv", e)),
    }
    if peer.pending == request_bytes {
        peer.pending = 0;
        // Only one reply is in flight, and it fits the socket's buffer.
        peer.stream.write_all(&buffer[..reply_bytes]).map_err(failed("send"))?;
    }
    Ok(true)
}

fn ask(
    streams: &[TcpStream],
    (request_bytes, reply_bytes): (usize, usize),
    time: Duration,
    mut seed: u64,
    buffer: &mut [u8],
) -> Done<Work> {
    let end = Instant::now() + time;
    let mut work = Work::default();
    while Instant::now() < end {
        seed = next_random(seed | 1);
        let mut stream = &streams[(seed >> 32) as usize % streams.len()];
        stream.write_all(&buffer[..request_bytes]).map_err(failed("send"))?;
        stream.read_exact(&mut buffer[..reply_bytes]).map_err(failed("recv"))?;
        work.ops += 1;
    }
    work.bytes = work.ops * reply_bytes as u64;
    Ok(work)
}
