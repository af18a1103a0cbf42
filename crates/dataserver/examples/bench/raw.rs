//! The floor: `pread` into a warm buffer and `send`, nothing else.

use super::cluster::{Processes, SERVERS, STRIPE_BYTES, UNIT_BYTES};
use std::fs::File;
use std::io::{IoSliceMut, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use weir_types::checksum::crc32c;

const BLOCK: usize = 4096;

/// A server process: a thread for each connection; requests are offset and length.
pub fn serve(args: &[String]) {
    let (path, bytes) = (&args[0], args[1].parse::<u64>().expect("a number"));
    let mut file = File::create(path).expect("a file");
    let fill: Vec<u8> = (0..1u32 << 20).map(|i| (i ^ (i >> 9)) as u8).collect();
    for _ in 0..bytes >> 20 {
        file.write_all(&fill).expect("written");
    }
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    println!("{}", listener.local_addr().expect("an address"));
    for stream in listener.incoming() {
        let (mut stream, file) = (stream.expect("a connection"), File::open(path).expect("a file"));
        stream.set_nodelay(true).expect("no delay");
        std::thread::spawn(move || {
            let mut buffer = vec![0; 1 << 20];
            let mut request = [0; 16];
            while stream.read_exact(&mut request).is_ok() {
                let number = |at: usize| {
                    u64::from_le_bytes(request[at..at + 8].try_into().expect("8 bytes"))
                };
                let part = &mut buffer[..number(8) as usize];
                file.read_exact_at(part, number(0)).expect("read");
                if stream.write_all(part).is_err() {
                    return;
                }
            }
        });
    }
}

pub struct Client {
    conns: Vec<TcpStream>,
    buffer: Vec<u8>,
}

impl Client {
    pub fn connect(servers: &Processes) -> Self {
        let conns = servers.addresses.iter().map(|address| {
            let stream = TcpStream::connect(address).expect("a connection");
            stream.set_nodelay(true).expect("no delay");
            stream
        });
        Self { conns: conns.collect(), buffer: vec![1; STRIPE_BYTES as usize] }
    }

    pub fn read_all(&mut self, bytes: u64, verify: bool, ahead: u64) {
        let share = STRIPE_BYTES / SERVERS as u64;
        let stripes = bytes / STRIPE_BYTES;
        for stripe in 0..stripes + ahead {
            if stripe < stripes {
                for conn in &mut self.conns {
                    request(conn, stripe * share, share);
                }
            }
            if stripe >= ahead {
                for (n, conn) in self.conns.iter_mut().enumerate() {
                    let units =
                        self.buffer.chunks_mut(UNIT_BYTES as usize).skip(n).step_by(SERVERS);
                    let mut slices: Vec<_> = units.map(IoSliceMut::new).collect();
                    let mut rest = &mut slices[..];
                    while !rest.is_empty() {
                        let n = conn.read_vectored(rest).expect("received");
                        assert!(n > 0);
                        IoSliceMut::advance_slices(&mut rest, n);
                    }
                    if verify {
                        let units =
                            self.buffer.chunks(UNIT_BYTES as usize).skip(n).step_by(SERVERS);
                        let sum =
                            units.flat_map(|u| u.chunks(BLOCK)).fold(0, |sum, b| sum ^ crc32c(b));
                        std::hint::black_box(sum);
                    }
                }
            }
        }
    }

    fn read_block(&mut self, offset: u64) {
        let n = (offset / UNIT_BYTES % SERVERS as u64) as usize;
        let at = offset / STRIPE_BYTES * (STRIPE_BYTES / SERVERS as u64) + offset % UNIT_BYTES;
        request(&mut self.conns[n], at, BLOCK as u64);
        self.conns[n].read_exact(&mut self.buffer[..BLOCK]).expect("received");
        std::hint::black_box(crc32c(&self.buffer[..BLOCK]));
    }
}

fn request(conn: &mut TcpStream, offset: u64, len: u64) {
    let mut request = [0; 16];
    request[..8].copy_from_slice(&offset.to_le_bytes());
    request[8..].copy_from_slice(&len.to_le_bytes());
    conn.write_all(&request).expect("sent");
}

/// Offsets of random blocks, without end.
pub fn offsets(seed: u64, bytes: u64) -> impl Iterator<Item = u64> {
    let mut state = 88_172_645_463_325_252 ^ (seed + 1);
    std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % (bytes / BLOCK as u64) * BLOCK as u64
    })
}

/// Reads random blocks with one thread for each client, `reads` in all.
pub fn random(clients: &mut [Client], bytes: u64, reads: u64) {
    let each = reads / clients.len() as u64;
    std::thread::scope(|scope| {
        for (seed, client) in clients.iter_mut().enumerate() {
            scope.spawn(move || {
                for offset in offsets(seed as u64, bytes).take(each as usize) {
                    client.read_block(offset);
                }
            });
        }
    });
}
