//! Messages between master and clients. A message is a letter, the length of its body (8 bytes,
//! little-endian), and the body.

use crate::apriori::{MAX_CANDIDATES, Sets};
use crate::format::ITEM_LIMIT;
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};

/// Maximum length of a message: counts, or frequent itemsets.
const MAX_MESSAGE_BYTES: u64 = 1 << 30;
const _: () = assert!(8 * MAX_CANDIDATES as u64 + 16 <= MAX_MESSAGE_BYTES);
const _: () = assert!(ITEM_LIMIT as usize <= MAX_CANDIDATES);

/// A client's first message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// Version of the program.
    pub version: String,
    /// The file system to attach.
    pub files: String,
    /// Name of the file.
    pub file: String,
    /// Size of the file, bytes.
    pub size: u64,
    /// Number of this client.
    pub rank: u64,
    /// Number of clients.
    pub clients: u64,
    /// Number of reading threads.
    pub producers: usize,
    /// Bytes per read request.
    pub request_bytes: usize,
}

/// The counts of a client in a pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Number of transactions.
    pub transactions: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Counts of items by number, or of candidates in their order.
    pub counts: Vec<u64>,
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// To a client: its task.
    Task(Task),
    /// To the master: the file is open, and the client is ready.
    Ready,
    /// To a client: count the candidates that follow from these sets. Sets of size 0: count items.
    Count(Sets),
    /// To the master: the counts of a pass.
    Counted(Counted),
    /// To the master: the client cannot go on.
    Failed(String),
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

impl Message {
    /// Sends the message.
    ///
    /// # Errors
    /// The receiver is gone, or the message is too long.
    pub fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let (letter, body) = match self {
            Message::Task(task) => (b'T', serde_json::to_vec(task)?),
            Message::Ready => (b'R', Vec::new()),
            Message::Count(sets) => {
                let mut body = (sets.size as u64).to_le_bytes().to_vec();
                body.extend(sets.items.iter().flat_map(|item| item.to_le_bytes()));
                (b'P', body)
            }
            Message::Counted(counted) => {
                let numbers = [counted.transactions, counted.bytes];
                let numbers = numbers.iter().chain(&counted.counts);
                (b'C', numbers.flat_map(|number| number.to_le_bytes()).collect())
            }
            Message::Failed(why) => (b'F', why.as_bytes().to_vec()),
        };
        if body.len() as u64 > MAX_MESSAGE_BYTES {
            return Err(invalid("too many frequent itemsets: ask for a greater --support"));
        }
        to.write_all(&[letter])?;
        to.write_all(&(body.len() as u64).to_le_bytes())?;
        to.write_all(&body)?;
        to.flush()
    }

    /// Receives a message; `None` at the end.
    ///
    /// # Errors
    /// The bytes are not a message.
    pub fn read(from: &mut impl Read) -> io::Result<Option<Self>> {
        let mut letter = [0];
        if from.read(&mut letter)? == 0 {
            return Ok(None);
        }
        let mut len = [0; 8];
        from.read_exact(&mut len)?;
        let len = u64::from_le_bytes(len);
        if len > MAX_MESSAGE_BYTES {
            return Err(invalid("a message is too long"));
        }
        let mut body = Vec::new();
        if from.take(len).read_to_end(&mut body)? as u64 != len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let words = body.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
        Ok(Some(match letter[0] {
            b'T' => Message::Task(serde_json::from_slice(&body)?),
            b'R' if len == 0 => Message::Ready,
            b'P' if len >= 8 && len % 4 == 0 => {
                let size = words.clone().next().unwrap_or_default() as usize;
                let items = body[8..].as_chunks::<4>().0.iter();
                let items: Vec<u32> = items.map(|item| u32::from_le_bytes(*item)).collect();
                let is_whole = items.len().checked_rem(size).unwrap_or(items.len()) == 0;
                if !is_whole || items.iter().any(|item| *item >= ITEM_LIMIT) {
                    return Err(invalid("itemsets of the wrong size"));
                }
                Message::Count(Sets { size, items })
            }
            b'C' if len >= 16 && len % 8 == 0 => {
                let mut numbers: Vec<u64> = words.collect();
                let counts = numbers.split_off(2);
                Message::Counted(Counted { transactions: numbers[0], bytes: numbers[1], counts })
            }
            b'F' => Message::Failed(String::from_utf8_lossy(&body).into_owned()),
            _ => return Err(invalid("what is said is no message")),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_as_they_were_said_and_others_are_refused() {
        let task = Task {
            version: "1".into(),
            files: "plain:/x".into(),
            file: "f".into(),
            size: 9,
            rank: 1,
            clients: 2,
            producers: 4,
            request_bytes: 512 << 10,
        };
        let all = [
            Message::Task(task),
            Message::Ready,
            Message::Count(Sets { size: 0, items: vec![] }),
            Message::Count(Sets { size: 2, items: vec![1, 2, 1, 3] }),
            Message::Counted(Counted { transactions: 3, bytes: 4, counts: vec![5, u64::MAX] }),
            Message::Failed("the disk is full".into()),
        ];
        let mut bytes = Vec::new();
        all.iter().for_each(|message| message.write(&mut bytes).unwrap());
        let mut from = &bytes[..];
        for message in &all {
            assert_eq!(Message::read(&mut from).unwrap().as_ref(), Some(message));
        }
        assert_eq!(Message::read(&mut from).unwrap(), None);
        for cut in 1..bytes.len() {
            let mut from = &bytes[..cut];
            while let Ok(Some(_)) = Message::read(&mut from) {}
        }
        let huge = [&b"C"[..], &u64::MAX.to_le_bytes()].concat();
        assert!(Message::read(&mut &huge[..]).is_err());
        assert!(Message::read(&mut &b"X\0\0\0\0\0\0\0\0"[..]).is_err());
    }
}
