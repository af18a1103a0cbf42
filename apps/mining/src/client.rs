//! A client: counts its part of a file, pass by pass.

use crate::apriori::{Counter, Sets};
use crate::format;
use crate::messages::{Counted, Message, Task};
use crate::scan::{Part, scan};
use sio::safe::{self, File};
use std::io::{BufReader, BufWriter, Read, Write};

/// The open file of a task.
pub struct Client {
    file: File,
    name: String,
    part: Part,
}

impl Client {
    /// Opens the file of a task on the attached file system.
    ///
    /// # Errors
    /// The file cannot be opened, or its size differs from the master's.
    pub fn new(task: &Task) -> Result<Self, String> {
        let file = File::open(&task.file).map_err(|e| e.to_string())?;
        let size = file.size().map_err(|e| e.to_string())?;
        if size != task.size {
            let (name, wanted) = (&task.file, task.size);
            return Err(format!("{name} has {size} bytes here, and {wanted} for the master"));
        }
        let part = Part {
            size,
            rank: task.rank,
            clients: task.clients,
            producers: task.producers,
            request_bytes: task.request_bytes,
        };
        Ok(Self { file, name: task.file.clone(), part })
    }

    /// Counts items, or the candidates that follow from these sets. `seen` is called with the total
    /// bytes read.
    ///
    /// # Errors
    /// The file cannot be read, or has too many candidates.
    pub fn count(&self, frequent: &Sets, mut seen: impl FnMut(u64)) -> Result<Counted, String> {
        let (mut transactions, mut seen_bytes) = (0, 0);
        let (mut items, mut counter) = (Vec::new(), None);
        if frequent.size > 0 {
            counter = Some(Counter::new(frequent).map_err(|e| e.to_string())?);
        }
        let bytes = scan(&self.file, &self.part, |number, chunk| {
            let found = format::read(chunk, |of| match &mut counter {
                Some(counter) => counter.add(of),
                None => count_items(&mut items, of),
            });
            transactions +=
                found.map_err(|damage| format!("{}: chunk {number} {damage}", self.name))?;
            seen_bytes += chunk.len() as u64;
            seen(seen_bytes);
            Ok(())
        })?;
        Ok(Counted { transactions, bytes, counts: counter.map_or(items, Counter::counts) })
    }
}

fn count_items(counts: &mut Vec<u64>, items: &[u32]) {
    // Items ascend, so the last one is the greatest.
    if let Some(last) = items.last().map(|last| *last as usize)
        && counts.len() <= last
    {
        counts.resize(last + 1, 0);
    }
    items.iter().for_each(|item| counts[*item as usize] += 1);
}

/// Follows the master's messages until there are no more.
///
/// # Errors
/// The error that was also sent to the master.
pub fn serve(from: impl Read, to: impl Write) -> Result<(), String> {
    let (mut from, mut to) = (BufReader::new(from), BufWriter::new(to));
    let done = work(&mut from, &mut to);
    if let Err(why) = &done {
        // If the master is gone, nobody needs the message.
        let _ = Message::Failed(why.clone()).write(&mut to);
    }
    done
}

fn work(from: &mut impl Read, to: &mut impl Write) -> Result<(), String> {
    let heard = Message::read(from).map_err(|e| e.to_string())?;
    let Some(Message::Task(task)) = heard else {
        return Err("`weir-mining client` is started by `weir-mining run`".into());
    };
    if task.version != env!("CARGO_PKG_VERSION") {
        let (own, other) = (env!("CARGO_PKG_VERSION"), &task.version);
        return Err(format!("this is version {own}, and the master is version {other}"));
    }
    safe::attach(&task.files).map_err(|e| e.to_string())?;
    let client = Client::new(&task)?;
    Message::Ready.write(to).map_err(|e| e.to_string())?;
    while let Some(message) = Message::read(from).map_err(|e| e.to_string())? {
        let Message::Count(frequent) = message else {
            return Err("the master says something else than what to count".into());
        };
        let counted = client.count(&frequent, |_| ())?;
        Message::Counted(counted).write(to).map_err(|e| e.to_string())?;
    }
    Ok(())
}
