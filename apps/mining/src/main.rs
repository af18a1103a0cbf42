//! `weir-mining`: association rules of transactions, found by the parallel data mining of paper 4
//! (`docs/applications.md`).
//!
//! ```text
//! master         passes: what is counted next, and the sum of the clients' counts
//!   │  messages  between master and clients
//!   └─ client    counts a part of the file
//!       └─ scan  producers that read ahead of the counting thread
//! apriori, rules candidates, counts and rules: no I/O;  oracle: an independent method
//! format         a file of transactions;  quest, baskets: sources of transactions
//! ```

mod apriori;
mod args;
mod baskets;
mod client;
mod format;
mod master;
mod messages;
mod oracle;
mod quest;
mod report;
mod rules;
mod scan;

use args::{Arguments, Command, Generate, Import, Place, Run};
use baskets::Baskets;
use clap::Parser;
use format::{CHUNK_BYTES, Chunks};
use master::{Found, Team};
use messages::Task;
use oracle::Oracle;

use quest::{Quest, Spec};
use report::Report;
use rules::Rule;
use sio::safe::{self, File};
use std::io::{self, IsTerminal};
use std::process::ExitCode;
use weir_records::end::end;
use weir_records::progress::Progress;

/// The longest file that is compared with the oracle, which loads it into memory.
const MAX_VERIFIED_BYTES: u64 = 1 << 30;
/// The longest list of item names.
const MAX_NAMES_BYTES: u64 = 64 << 20;

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Generate(asked) => generate(&asked),
        Command::Import(asked) => import(&asked),
        Command::Run(asked) => run(&asked),
        Command::Client if io::stdin().is_terminal() => {
            Err("`weir-mining client` is started by `weir-mining run`".to_owned())
        }
        // The master prints errors of its clients.
        Command::Client => {
            return match client::serve(io::stdin(), io::stdout()) {
                Ok(()) => ExitCode::SUCCESS,
                Err(_) => ExitCode::FAILURE,
            };
        }
    };
    end("weir-mining", done)
}

fn told(error: safe::Error) -> String {
    error.text
}

/// A new file of transactions.
struct NewFile {
    file: File,
    chunks: Chunks,
    bytes: u64,
    transactions: u64,
}

impl NewFile {
    fn create(place: &Place) -> Result<Self, String> {
        safe::attach(&place.files()).map_err(told)?;
        let file = File::create(&place.file).map_err(told)?;
        Ok(Self { file, chunks: Chunks::default(), bytes: 0, transactions: 0 })
    }

    fn add(&mut self, items: &[u32]) -> Result<(), String> {
        let number = self.transactions as u32;
        if let Some(chunk) = self.chunks.add(number, number, items)? {
            self.file.write_at(self.bytes, &chunk).map_err(told)?;
            self.bytes += chunk.len() as u64;
        }
        self.transactions += 1;
        Ok(())
    }

    /// Size of the file if it ended here.
    fn size(&self) -> u64 {
        self.bytes + self.chunks.pending_bytes() as u64
    }

    fn finish(mut self, name: &str) -> Result<String, String> {
        let last = std::mem::take(&mut self.chunks).finish();
        self.file.write_at(self.bytes, &last).map_err(told)?;
        self.bytes += last.len() as u64;
        self.file.sync().map_err(told)?;
        self.file.close().map_err(told)?;
        Ok(format!("{name}: {} transactions, {} bytes\n", self.transactions, self.bytes))
    }
}

fn generate(asked: &Generate) -> Result<String, String> {
    let mut file = NewFile::create(&asked.place)?;
    let mut quest = Quest::new(Spec {
        length: asked.length,
        items: asked.items,
        patterns: asked.patterns,
        pattern_length: asked.pattern_length,
        correlation: asked.correlation,
        kept: asked.kept,
        seed: asked.seed,
    });
    let mut progress = Progress::default();
    progress.name(format!("writing {}", asked.place.file));
    loop {
        let (done, of) = match asked.size {
            Some(size) => (file.size(), size),
            None => (file.transactions, asked.transactions),
        };
        if done >= of {
            break;
        }
        progress.at(done, of);
        file.add(&quest.transaction())?;
    }
    progress.end();
    file.finish(&asked.place.file)
}

/// The name of the file with item names.
fn names_file(file: &str) -> String {
    format!("{file}.items")
}

fn import(asked: &Import) -> Result<String, String> {
    let text = std::fs::read_to_string(&asked.from);
    let about = |e: &dyn std::fmt::Display| format!("{}: {e}", asked.from.display());
    let read = Baskets::read(&text.map_err(|e| about(&e))?).map_err(|e| about(&e))?;
    if let Some(name) = read.names.iter().find(|name| name.contains(['\n', '\r'])) {
        return Err(about(&format!("the item {name:?} has a line break")));
    }
    let mut file = NewFile::create(&asked.place)?;
    for items in &read.baskets {
        file.add(items)?;
    }
    let names = File::create(&names_file(&asked.place.file)).map_err(told)?;
    names.write_at(0, (read.names.join("\n") + "\n").as_bytes()).map_err(told)?;
    names.close().map_err(told)?;
    let mut said = file.finish(&asked.place.file)?;
    if read.empty > 0 {
        said += &format!("{} baskets without items are left out\n", read.empty);
    }
    Ok(said)
}

/// The names of items, if the file has names.
fn names(file: &str) -> Result<Vec<String>, String> {
    let file = match File::open(&names_file(file)) {
        Err(error) if error.code == sio::core::codes::Code::FileNotFound => return Ok(Vec::new()),
        opened => opened.map_err(told)?,
    };
    let size = file.size().map_err(told)?;
    if size > MAX_NAMES_BYTES {
        return Err(format!("the names of items have {size} bytes, the most is {MAX_NAMES_BYTES}"));
    }
    let mut bytes = vec![0; size as usize];
    let found = file.read_at(0, &mut bytes).map_err(told)?;
    Ok(String::from_utf8_lossy(&bytes[..found]).lines().map(str::to_owned).collect())
}

fn run(asked: &Run) -> Result<String, String> {
    let files = asked.place.files();
    safe::attach(&files).map_err(told)?;
    let name = &asked.place.file;
    let size = File::open(name).and_then(|file| file.size()).map_err(told)?;
    if asked.verify && size > MAX_VERIFIED_BYTES {
        return Err(format!(
            "{name} has {size} bytes: --verify has the file in memory, and takes {MAX_VERIFIED_BYTES} at most"
        ));
    }
    let names = names(name)?;
    let here = (1..asked.clients).map(|_| String::new());
    let vias: Vec<String> = here.chain(asked.via.iter().cloned()).collect();
    let task = Task {
        version: env!("CARGO_PKG_VERSION").into(),
        files,
        file: name.clone(),
        size,
        rank: 0,
        clients: vias.len() as u64 + 1,
        producers: asked.producers,
        request_bytes: asked.request,
    };
    let most_items = asked.passes.map_or(usize::MAX, |passes| passes as usize);
    let mut team = Team::start(&task, &vias)?;
    let found = team.find(asked.support, most_items, &mut Progress::default())?;
    team.end()?;
    let rules = rules::rules(&found.frequent, asked.confidence)?;
    if asked.verify {
        verify(name, size, most_items, asked.confidence, (&found, &rules))?;
    }
    let report = Report {
        file: name,
        clients: vias.len() + 1,
        found: &found,
        rules: &rules,
        names: &names,
        is_verified: asked.verify,
    };
    Ok(match asked.json {
        true => format!("{:#}\n", report.json()),
        false => report.text(asked.top),
    })
}

/// Compares the result with that of the oracle.
fn verify(
    name: &str,
    size: u64,
    most_items: usize,
    confidence: f64,
    (found, rules): (&Found, &[Rule]),
) -> Result<(), String> {
    let file = File::open(name).map_err(told)?;
    let (mut oracle, mut chunk) = (Oracle::default(), vec![0; CHUNK_BYTES]);
    let mut transactions = 0;
    for offset in (0..size).step_by(CHUNK_BYTES) {
        let bytes = file.read_at(offset, &mut chunk).map_err(told)?;
        let read = format::read(&chunk[..bytes], |items| oracle.add(items));
        transactions += read.map_err(|damage| format!("{name}: at byte {offset} {damage}"))?;
    }
    let differs = |what: &str| Err(format!("{name}: one thread finds other {what}: this is a bug"));
    if transactions != found.transactions {
        return differs("transactions");
    }
    let frequent = oracle.frequent(found.least, most_items);
    if frequent != found.frequent {
        return differs("itemsets");
    }
    if oracle::rules(&frequent, confidence)? != rules {
        return differs("rules");
    }
    Ok(())
}
