//! The master: decides what is counted in each pass, counts a part itself as client 0, and adds up
//! the counts of all clients.

use crate::apriori::{Sets, candidates};
use crate::client::Client;
use crate::messages::{Counted, Message, Task};
use crate::rules::Frequent;
use std::time::Instant;
use weir_records::progress::Progress;
use weir_records::team::Member;

/// The threshold above which an itemset is frequent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Support {
    /// This many transactions.
    Count(u64),
    /// This percentage of all transactions.
    Percent(f64),
}

impl Support {
    /// Minimum number of transactions that must contain a frequent itemset.
    #[must_use]
    pub fn least(self, transactions: u64) -> u64 {
        match self {
            Support::Count(count) => count,
            // A number that is whole except for rounding errors is not rounded up.
            Support::Percent(part) => (part / 100.0 * transactions as f64 - 1e-6).ceil() as u64,
        }
        .max(1)
    }
}

/// A pass over the file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pass {
    /// Number of items in each candidate.
    pub size: usize,
    /// Number of counted candidates.
    pub candidates: usize,
    /// Number of frequent candidates.
    pub frequent: usize,
    /// Bytes read by all clients.
    pub bytes: u64,
    /// Seconds from the master's message to the counts of the last client.
    pub seconds: f64,
}

/// The result of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Found {
    /// Number of transactions in the file.
    pub transactions: u64,
    /// Minimum number of transactions that must contain a frequent itemset.
    pub least: u64,
    /// The passes that were made.
    pub passes: Vec<Pass>,
    /// The frequent itemsets.
    pub frequent: Frequent,
}

/// The clients of a run, including the master.
pub struct Team {
    own: Client,
    others: Vec<Member>,
    size: u64,
}

impl Team {
    /// Starts one client with each of these commands. When it returns, all clients have opened the
    /// file. `task` is the master's own.
    ///
    /// # Errors
    /// A client cannot be started, or the file cannot be opened.
    pub fn start(task: &Task, vias: &[String]) -> Result<Self, String> {
        let own = Client::new(task)?;
        let mut others = Vec::with_capacity(vias.len());
        for (n, via) in vias.iter().enumerate() {
            let rank = n as u64 + 1;
            let mut member = Member::start(format!("client {rank}"), via, &["client"])?;
            say(&mut member, &Message::Task(Task { rank, ..task.clone() }))?;
            others.push(member);
        }
        for member in &mut others {
            match hear(member)? {
                Message::Ready => (),
                _ => return Err(format!("{} does not say that it is ready", member.name)),
            }
        }
        Ok(Self { own, others, size: task.size })
    }

    /// Finds all frequent itemsets with at most this many items.
    ///
    /// # Errors
    /// A client fails, or there are too many candidates.
    pub fn find(
        &mut self,
        support: Support,
        most_items: usize,
        progress: &mut Progress,
    ) -> Result<Found, String> {
        let mut found = Found::default();
        let (items, seconds) = self.count(&Sets::default(), progress)?;
        found.transactions = items.transactions;
        found.least = support.least(items.transactions);
        let numbers = Sets { size: 1, items: (0..items.counts.len() as u32).collect() };
        let mut frequent = keep(&mut found, &numbers, &items, seconds);
        while !frequent.is_empty() && frequent.size < most_items {
            let next = candidates(&frequent).map_err(|e| e.to_string())?;
            if next.is_empty() {
                break;
            }
            let (counted, seconds) = self.count(&frequent, progress)?;
            if counted.transactions != found.transactions {
                return Err("the file has changed between two passes".into());
            }
            frequent = keep(&mut found, &next, &counted, seconds);
        }
        Ok(found)
    }

    /// Runs a pass.
    fn count(
        &mut self,
        frequent: &Sets,
        progress: &mut Progress,
    ) -> Result<(Counted, f64), String> {
        let begin = Instant::now();
        let message = Message::Count(frequent.clone());
        for member in &mut self.others {
            say(member, &message)?;
        }
        let clients = self.others.len() as u64 + 1;
        progress.name(format!("pass {}", frequent.size + 1));
        let size = self.size;
        // Assumes that the other clients have progressed equally.
        let own = self.own.count(frequent, |bytes| progress.at(bytes * clients, size));
        let mut sum = match own {
            Ok(own) => own,
            Err(why) => return Err(format!("client 0: {why}")),
        };
        for member in &mut self.others {
            let Message::Counted(counted) = hear(member)? else {
                return Err(format!("{} says something else than its counts", member.name));
            };
            add(&mut sum, counted, frequent.size == 0)
                .map_err(|why| format!("{}: {why}", member.name))?;
        }
        progress.end();
        if sum.bytes != self.size {
            let (read, size) = (sum.bytes, self.size);
            return Err(format!("the clients have read {read} bytes of {size}"));
        }
        Ok((sum, begin.elapsed().as_secs_f64()))
    }

    /// Lets the clients end.
    ///
    /// # Errors
    /// A client has failed.
    pub fn end(self) -> Result<(), String> {
        self.others.into_iter().try_for_each(Member::end)
    }
}

fn say(member: &mut Member, message: &Message) -> Result<(), String> {
    let said = match &mut member.input {
        Some(input) => message.write(input),
        None => return Err(format!("{} was told to end", member.name)),
    };
    said.map_err(|error| match Message::read(&mut member.output) {
        // The client has said why it ended.
        Ok(Some(Message::Failed(why))) => format!("{}: {why}", member.name),
        _ => member.lost(&error),
    })
}

fn hear(member: &mut Member) -> Result<Message, String> {
    match Message::read(&mut member.output) {
        Ok(Some(Message::Failed(why))) => Err(format!("{}: {why}", member.name)),
        Ok(Some(message)) => Ok(message),
        Ok(None) => Err(member.lost(&std::io::ErrorKind::UnexpectedEof.into())),
        Err(error) => Err(member.lost(&error)),
    }
}

/// Adds counts. Those of items extend to the greatest item that a client has found.
fn add(sum: &mut Counted, other: Counted, are_items: bool) -> Result<(), String> {
    sum.transactions += other.transactions;
    sum.bytes += other.bytes;
    if sum.counts.len() < other.counts.len() && are_items {
        sum.counts.resize(other.counts.len(), 0);
    }
    if other.counts.len() > sum.counts.len()
        || (!are_items && other.counts.len() < sum.counts.len())
    {
        return Err("it has counted other candidates".into());
    }
    sum.counts.iter_mut().zip(other.counts).for_each(|(sum, count)| *sum += count);
    Ok(())
}

/// Records which of the candidates are frequent.
fn keep(found: &mut Found, candidates: &Sets, counted: &Counted, seconds: f64) -> Sets {
    let mut kept = Sets { size: candidates.size, items: Vec::new() };
    for (set, count) in candidates.iter().zip(&counted.counts) {
        if *count >= found.least {
            kept.items.extend_from_slice(set);
            found.frequent.insert(set.to_vec(), *count);
        }
    }
    found.passes.push(Pass {
        size: candidates.size,
        candidates: candidates.len(),
        frequent: kept.len(),
        bytes: counted.bytes,
        seconds,
    });
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_count_is_rounded_up() {
        assert_eq!(Support::Percent(30.0).least(4627), 1389);
        assert_eq!(Support::Percent(10.0).least(50), 5);
        assert_eq!(Support::Percent(0.0).least(50), 1);
        assert_eq!(Support::Count(0).least(50), 1);
    }

    #[test]
    fn counts_of_other_candidates_are_refused() {
        let of = |counts: &[u64]| Counted { transactions: 1, bytes: 2, counts: counts.to_vec() };
        let mut sum = of(&[1]);
        add(&mut sum, of(&[1, 2, 3]), true).unwrap();
        add(&mut sum, of(&[]), true).unwrap();
        assert_eq!(sum, Counted { transactions: 3, bytes: 6, counts: vec![2, 2, 3] });
        assert!(add(&mut sum, of(&[1]), false).is_err());
        assert!(add(&mut sum, of(&[1; 4]), false).is_err());
    }
}
