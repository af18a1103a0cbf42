//! A history made by hand, an entry each millisecond.

use std::time::Duration;
use weir_sim::history::{Call, History, Node, Outcome, What};
use weir_types::ErrorKind;

/// The number of the first call.
const FIRST: u32 = 100;

/// What happened so far.
#[derive(Default)]
pub struct Story {
    pub history: History,
    calls: u32,
    now_ms: u64,
}

impl Story {
    /// The history that somebody tells.
    pub fn told(tell: impl FnOnce(&mut Story)) -> History {
        let mut story = Story::default();
        tell(&mut story);
        story.history
    }
    pub fn push(&mut self, what: What) {
        self.now_ms += 1;
        self.history.push(Duration::from_millis(self.now_ms), what);
    }
    pub fn wait_ms(&mut self, ms: u64) {
        self.now_ms += ms;
    }
    pub fn begin(&mut self, client: u8, call: Call) -> u32 {
        let id = FIRST + self.calls;
        self.calls += 1;
        self.push(What::Begin { client, id, call });
        id
    }
    pub fn end(&mut self, id: u32, outcome: Outcome) {
        self.push(What::End { id, outcome });
    }
    pub fn fails(&mut self, id: u32, kind: ErrorKind) {
        self.end(id, Outcome::Unknown(kind.into()));
    }
    pub fn call(&mut self, client: u8, call: Call) {
        let id = self.begin(client, call);
        self.end(id, Outcome::Done);
    }
    /// Of all of file 0, which has 4 cells.
    pub fn begin_write(&mut self, client: u8) -> u32 {
        self.begin(client, Call::Write { file: 0, first: 0, cells: 4 })
    }
    pub fn write(&mut self, client: u8) -> u32 {
        let id = self.begin_write(client);
        self.end(id, Outcome::Done);
        id
    }
    pub fn begin_read(&mut self, client: u8) -> u32 {
        self.begin(client, Call::Read { file: 0, first: 0, cells: 4 })
    }
    /// A read that sees what `write` wrote (`None`: zeros).
    pub fn saw(&mut self, read: u32, write: Option<u32>) {
        self.end(read, Outcome::Cells(vec![write.map_or(0, |id| u64::from(id) + 1); 4]));
    }
    pub fn read(&mut self, client: u8, write: Option<u32>) {
        let id = self.begin_read(client);
        self.saw(id, write);
    }
    pub fn begin_sync(&mut self, client: u8) -> u32 {
        self.begin(client, Call::Sync { file: 0 })
    }
    pub fn sync(&mut self, client: u8) {
        self.call(client, Call::Sync { file: 0 });
    }
    pub fn flush(&mut self, client: u8) {
        self.call(client, Call::Flush { file: 0 });
    }
    pub fn killed(&mut self, client: u8) {
        self.push(What::ClientKilled { client });
    }
    pub fn power_cut(&mut self, node: Node) {
        self.push(What::PowerCut(node));
    }
}
