//! The members of etcd that `weir up --meta` and `weir meta add` make on this machine, for the
//! journal of several metadata servers.
//!
//! They listen on Unix sockets in a directory that only its owner enters, and on no port. (Those of
//! older versions have ports of a loopback address, and keep them: members of etcd remember where
//! the others are.)

use crate::cluster::daemon::cluster_id;
use crate::cluster::process::{self, Process};
use crate::cluster::state::{Description, EtcdDescription, StateDir, make_dir};
use crate::cluster::undo::Undo;
use crate::failure::{Done, Failure};
use crate::logging;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_etcd::EtcdJournal;
use weir_metaserver::Journal;

/// The name of etcd's program.
pub const PROGRAM: &str = "etcd";
/// The longest to wait until etcd answers.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// From so many metadata servers on etcd has three members, so that whichever process dies is not
/// needed. With fewer it has one.
const METAS_FOR_THREE: usize = 3;
/// What the address of a Unix socket begins with.
const UNIX: &str = "unix://";
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

/// New members for so many metadata servers.
pub fn plan(metas: usize) -> Vec<EtcdDescription> {
    let count = if metas >= METAS_FOR_THREE { 3 } else { 1 };
    // etcd names a socket by a host and a port, in the directory in which it is started.
    let socket = |of: &str, id: u32| format!("{UNIX}{of}-{id}:1");
    let member =
        |id| EtcdDescription { id, client: socket("client", id), peer: socket("peer", id) };
    (1..=count).map(member).collect()
}

/// The addresses by which metadata servers of this machine ask these members.
pub fn endpoints(state: &StateDir, description: &Description) -> Vec<String> {
    let endpoint = |member: &EtcdDescription| match member.client.strip_prefix(UNIX) {
        Some(socket) => format!("unix:{}", state.etcd_dirs().join(socket).display()),
        None => url(&member.client),
    };
    description.etcd.iter().map(endpoint).collect()
}

/// The URL of an address in the description.
fn url(address: &str) -> String {
    match address.starts_with(UNIX) {
        true => address.to_owned(),
        false => format!("http://{address}"),
    }
}

/// The journal of a cluster on the etcd at these addresses.
pub fn journal(endpoints: &[String], description: &Description) -> Done<Arc<dyn Journal>> {
    let cluster = cluster_id(&description.id)?;
    Ok(Arc::new(EtcdJournal::new(endpoints, cluster)?))
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
        make_dir(&state.etcd_dirs(), 0o700)?;
        make_dir(&state.etcd_dir(member.id), 0o700)?;
        for address in [&member.client, &member.peer] {
            if let Some(socket) = address.strip_prefix(UNIX) {
                remove_dead_socket(&state.etcd_dirs().join(socket))?;
            }
        }
        let arguments = arguments(state, description, member);
        undo.processes.push(process::start_other(
            PROGRAM,
            &arguments,
            &state.etcd_dirs(),
            &state.log_file(&name),
            &pid_file,
        )?);
        started += 1;
    }
    await_answer(state, description)?;
    Ok(started)
}

/// Removes the socket of a process that was killed. etcd 3.4 does not, and then cannot listen there.
fn remove_dead_socket(socket: &Path) -> Done {
    match UnixStream::connect(socket) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
            std::fs::remove_file(socket).map_err(|e| Failure::file(socket, e))
        }
        // There is none; or a process listens, whose socket stays.
        _ => Ok(()),
    }
}

fn arguments(
    state: &StateDir,
    description: &Description,
    member: &EtcdDescription,
) -> Vec<OsString> {
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
    let journal = journal(&endpoints(state, description), description)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn the_socket_of_a_dead_process_goes_and_that_of_a_living_one_stays() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("client-1:1");
        remove_dead_socket(&socket).unwrap();
        let listener = UnixListener::bind(&socket).unwrap();
        remove_dead_socket(&socket).unwrap();
        assert!(socket.exists());
        drop(listener);
        remove_dead_socket(&socket).unwrap();
        assert!(!socket.exists());
    }
}
