//! Several processes that use one SQLite database at once, on a mount: its
//! locks, its write-ahead log and the shared memory beside it; one of them is
//! killed in the middle. (`programs.rs` has one process.)

use crate::harness::{Place, eventually, root};
use crate::mounted::{Mounts, script, sh};
use std::path::Path;
use std::process::{Child, Stdio};

/// Moves money between accounts until told to stop: every reader at any moment
/// must find the same sum. Says on a local file, after each commit, how many
/// it has made. In the mode `wal-in-turns` it has the database for itself while
/// it is connected, which is so long as a few transactions.
const CLIENT: &str = r#"
import os, random, sqlite3, sys, time
path, mode, who, progress = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
in_turns = mode == 'wal-in-turns'
random.seed(who)
made = 0

def connect():
    # Two that wait for the whole database keep each other waiting: each has read it.
    timeout = random.uniform(0.1, 0.4) if in_turns else 60
    db = sqlite3.connect(path, timeout=timeout, isolation_level=None)
    if in_turns:
        db.execute('pragma locking_mode=exclusive')
    else:
        db.execute('pragma journal_mode=%s' % mode)
    return db

def again(db):
    db.close()
    # SQLite's waiting is not fair: whoever had its turn leaves the others time.
    time.sleep(random.uniform(0.02, 0.2))
    return connect()

db = connect()
while not os.path.exists(progress + '.stop'):
    if in_turns and made % 4 == 0:
        db = again(db)
    a, b = random.sample(range(50), 2)
    n = random.randrange(100)
    try:
        db.execute('begin immediate')
    except sqlite3.OperationalError as e:
        if not in_turns or 'locked' not in str(e):
            raise
        db = again(db)
        continue
    db.execute('update account set money = money - ? where id = ?', (n, a))
    db.execute('update account set money = money + ? where id = ?', (n, b))
    db.execute('insert into done(who, number, filler) values (?, ?, ?)', (who, made, os.urandom(300)))
    db.execute('commit')
    made += 1
    with open(progress + '.next', 'w') as f:
        f.write(str(made))
    os.rename(progress + '.next', progress)
    total, = db.execute('select sum(money) from account').fetchone()
    assert total == 50000, total
    if in_turns:
        assert os.path.exists(path + '-wal') and not os.path.exists(path + '-shm')
db.close()
"#;

struct Client {
    child: Child,
    progress: std::path::PathBuf,
}

impl Client {
    fn start(place: &Place, database: &Path, mode: &str, who: usize) -> Self {
        let progress = place.path(&format!("{mode}-{who}"));
        let program = place.path("client.py");
        std::fs::write(&program, CLIENT).unwrap();
        let line = format!(
            "exec python3 {} {} {mode} {who} {}",
            program.display(),
            database.display(),
            progress.display()
        );
        let log = std::fs::File::create(progress.with_extension("log")).unwrap();
        let mut command = script(&place.path(""), &line);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        Self { child: command.spawn().unwrap(), progress }
    }

    fn made(&self) -> u64 {
        std::fs::read_to_string(&self.progress).ok().and_then(|t| t.parse().ok()).unwrap_or(0)
    }

    fn wait_for(&mut self, transactions: u64) {
        eventually("transactions are committed", || {
            assert!(self.child.try_wait().unwrap().is_none(), "{}", self.log());
            self.made() >= transactions
        });
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.progress.with_extension("log")).unwrap_or_default()
    }

    /// How many it has committed.
    fn stop(mut self) -> u64 {
        std::fs::write(format!("{}.stop", self.progress.display()), "").unwrap();
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{}", self.log());
        self.made()
    }

    /// SIGKILL, wherever it is. At least so many were committed.
    fn kill(mut self) -> u64 {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.made()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn shared_database(mode: &str, mounts: usize) {
    if !root() {
        return;
    }
    let place = Place::new();
    let all = Mounts::new(&place, "sqlite", mounts);
    let journal = mode.trim_end_matches("-in-turns");
    sh(
        &all.at[0],
        &format!(
            "sqlite3 db 'pragma journal_mode={journal}; create table account(id integer primary key, money int);
             create table done(who int, number int, filler blob, unique(who, number));
             with recursive c(x) as (select 0 union all select x+1 from c where x < 49)
             insert into account select x, 1000 from c'"
        ),
    );
    let client = |who: usize| Client::start(&place, &all.at[who % mounts].join("db"), mode, who);
    let mut clients: Vec<Client> = (0..3).map(client).collect();
    for client in &mut clients {
        client.wait_for(15);
    }
    let killed = clients.pop().unwrap().kill();
    let before = clients[0].made();
    for client in &mut clients {
        client.wait_for(before + 15);
    }
    let made: Vec<u64> = clients.into_iter().map(Client::stop).collect();
    for at in &all.at {
        let out = sh(
            at,
            "sqlite3 db 'pragma integrity_check; select sum(money) from account;
             select who, count(*), max(number) + 1 from done group by who order by who'",
        );
        let lines: Vec<&str> = out.lines().collect();
        assert_eq!(lines[..2], ["ok", "50000"], "{out}");
        assert_eq!(lines[2], format!("0|{}|{}", made[0], made[0]), "{out}");
        assert_eq!(lines[3], format!("1|{}|{}", made[1], made[1]), "{out}");
        // The killed one may have committed one more than it said.
        let counts = [killed, killed + 1].map(|n| format!("2|{n}|{n}"));
        assert!(counts.contains(&lines[4].to_owned()), "{counts:?} in {out}");
    }
}

#[test]
fn processes_share_a_database_with_a_rollback_journal() {
    shared_database("delete", 1);
}

#[test]
fn processes_share_a_database_with_a_write_ahead_log() {
    shared_database("wal", 1);
}

#[test]
fn processes_on_two_mounts_share_a_database_with_a_rollback_journal() {
    shared_database("delete", 2);
}

#[test]
fn processes_on_two_mounts_take_turns_with_a_write_ahead_log() {
    shared_database("wal-in-turns", 2);
}

#[test]
#[ignore = "damages the database, every time: the log's index is in memory that all processes \
            have to share, which two mounts do not give (docs/semantics.md, SQLite)"]
fn processes_on_two_mounts_share_a_database_with_a_write_ahead_log() {
    shared_database("wal", 2);
}
