//! The members of etcd that `weir up --meta` and `weir meta add` make on this machine, for the
//! journal of several metadata servers. They listen on a loopback address.

use crate::cluster::ports;
use crate::cluster::process::{self, Process};
use crate::cluster::state::{Description, EtcdDescription, StateDir, make_dir};
use crate::cluster::undo::Undo;
use crate::failure::{Done, Failure};
use crate::logging;
use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_etcd::EtcdJournal;
use weir_metaserver::Journal;

use super::daemon::cluster_id;

/// The name of etcd's program.
pub const PROGRAM: &str = "etcd";
/// The longest to wait until etcd answers.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// From so many metadata servers on etcd has three members, so that whichever process dies is not
/// needed. With fewer it has one.
const METAS_FOR_THREE: usize = 3;
/// The most bytes of its file that etcd takes.
const QUOTA_BYTES: u64 = 2 << 30;

/// The name of the daemon of a member.
pub fn etcd_name(member: u32) -> String {
    format!("etcd-{member}")
}

/// Fails if etcd is not installed.
pub fn require() -> Done {
    let mut asked = Command::new(PROGRAM);
    asked.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    match asked.status() {
        Ok(_) => Ok(()),
        Err(_) => Err(Failure::new("several metadata servers need etcd, which is not installed")
            .hint("install it: `apt-get install etcd-server` on Debian")),
    }
}

/// Chooses addresses of new members for so many metadata servers.
pub fn plan(listen: IpAddr, metas: usize) -> Done<(Vec<EtcdDescription>, ports::Held)> {
    let at = if listen.is_loopback() { listen } else { IpAddr::V4(Ipv4Addr::LOCALHOST) };
    let count = if metas >= METAS_FOR_THREE { 3 } else { 1 };
    let held = ports::free(at, 2 * count)?;
    let address = |port: &u16| SocketAddr::new(at, *port).to_string();
    let pairs = held.ports.chunks_exact(2).zip(1..);
    let members = pairs.map(|(pair, id)| EtcdDescription {
        id,
        client: address(&pair[0]),
        peer: address(&pair[1]),
    });
    Ok((members.collect(), held))
}

/// The addresses by which metadata servers ask etcd.
pub fn endpoints(description: &Description) -> Vec<String> {
    description.etcd.iter().map(|member| format!("http://{}", member.client)).collect()
}

/// The journal of the cluster.
pub fn journal(description: &Description) -> Done<Arc<dyn Journal>> {
    let cluster = cluster_id(&description.id)?;
    Ok(Arc::new(EtcdJournal::new(&endpoints(description), cluster)?))
}

/// Starts the members that are not running, and waits until etcd answers. Returns how many were
/// started.
pub fn start(state: &StateDir, description: &Description, undo: &mut Undo) -> Done<usize> {
    if description.etcd.is_empty() {
        return Ok(0);
    }
    let mut started = 0;
    for member in &description.etcd {
        let name = etcd_name(member.id);
        let pid_file = state.pid_file(&name);
        if Process::from_file(&pid_file).is_some() {
            continue;
        }
        require()?;
        undo.pid_files.push(pid_file.clone());
        make_dir(&state.etcd_dir(member.id), 0o700)?;
        let arguments = arguments(state, description, member);
        undo.processes.push(process::start_other(
            PROGRAM,
            &arguments,
            &state.log_file(&name),
            &pid_file,
        )?);
        started += 1;
    }
    await_answer(state, description)?;
    Ok(started)
}

fn arguments(
    state: &StateDir,
    description: &Description,
    member: &EtcdDescription,
) -> Vec<OsString> {
    let url = |at: &String| format!("http://{at}");
    let all: Vec<String> = description
        .etcd
        .iter()
        .map(|member| format!("{}={}", etcd_name(member.id), url(&member.peer)))
        .collect();
    let (client, peer) = (url(&member.client), url(&member.peer));
    let pairs: [(&str, OsString); 11] = [
        ("--name", etcd_name(member.id).into()),
        ("--data-dir", state.etcd_dir(member.id).into()),
        ("--listen-client-urls", client.clone().into()),
        ("--advertise-client-urls", client.into()),
        ("--listen-peer-urls", peer.clone().into()),
        ("--initial-advertise-peer-urls", peer.into()),
        ("--initial-cluster", all.join(",").into()),
        ("--initial-cluster-token", description.id.clone().into()),
        ("--quota-backend-bytes", QUOTA_BYTES.to_string().into()),
        // etcd keeps this many entries of its log in memory, and 5,000 more. An entry has up to 1
        // MiB.
        ("--snapshot-count", "1000".into()),
        ("--log-level", "warn".into()),
    ];
    pairs.into_iter().flat_map(|(flag, value)| [OsString::from(flag), value]).collect()
}

fn await_answer(state: &StateDir, description: &Description) -> Done {
    let journal = journal(description)?;
    let begin = Instant::now();
    loop {
        let error = match journal.head() {
            Ok(_) => return Ok(()),
            Err(error) => error,
        };
        let gone = description.etcd.iter().map(|member| etcd_name(member.id));
        let mut gone = gone.filter(|name| Process::from_file(&state.pid_file(name)).is_none());
        let is_over = begin.elapsed() > START_TIMEOUT;
        // For a moment, before etcd runs, the process is still a shell.
        let ended = (begin.elapsed() > Duration::from_secs(5)).then(|| gone.next()).flatten();
        if let Some(name) = ended.or(is_over.then(|| etcd_name(1))) {
            let log = state.log_file(&name);
            return Err(Failure::from(error)
                .about("etcd does not answer")
                .hint(format!("the log of its member {name} is {}", log.display())));
        }
        if begin.elapsed() > Duration::from_secs(10) {
            logging::say("weir: etcd does not answer yet; waiting for it");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}
