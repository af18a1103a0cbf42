//! nfs-ganesha in the network of a node: an NFS server of version 3, over TCP.
//!
//! It must register with a port mapper, although nobody asks that here. So `rpcbind` runs beside
//! it, and both have a `/run` of their own.

use super::super::{Network, have, text};
use std::fs;
use std::io::{Error, ErrorKind, Result, Write, stderr};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The ports of the server.
pub const NFS_PORT: u16 = 2049;
pub const MOUNT_PORT: u16 = 20048;
/// Maximum time until it serves.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(20);
const LOG: &str = "ganesha.log";

/// `$1`: the directory for configuration and log.
const RUN: &str = "mount -t tmpfs tmpfs /run && mkdir -p /run/ganesha /run/rpcbind || exit
rpcbind -f -w &
n=0
while ! [ -S /run/rpcbind.sock ] && [ $n -lt 500 ]; do sleep 0.01; n=$((n + 1)); done
exec ganesha.nfsd -F -f \"$1/ganesha.conf\" -L \"$1/ganesha.log\" -p \"$1/ganesha.pid\"";

/// What is missing for an NFS server and its clients; `None`: nothing.
pub fn missing() -> Option<&'static str> {
    let programs = have(&["unshare", "nsenter"], "--version") && have(&["ganesha.nfsd"], "-v");
    if !programs || super::library::Library::load().is_none() {
        return Some("nfs-ganesha, nfs-ganesha-vfs and libnfs13");
    }
    // `rpcbind` has no other option with which it answers and exits.
    (!have(&["rpcbind"], "-?")).then_some("rpcbind")
}

/// A running server. Dropping it kills it.
#[derive(Debug)]
pub struct NfsServer {
    child: Child,
}

impl NfsServer {
    /// Serves a directory read-only from a node. Its configuration and log are in `own`, an empty
    /// directory. The server reads through the page cache, as programs do.
    ///
    /// # Errors
    /// It cannot be started, or does not serve in time; the error has its last messages.
    pub fn start(network: &Network, node: u32, export: &Path, own: &Path) -> Result<Self> {
        let (export, own_text) = (text(export)?, text(own)?);
        fs::write(own.join("ganesha.conf"), configuration(export, own_text))?;
        let mut command = Command::new("unshare");
        // Unmounts outside propagate into the server's namespace, but not the other way around.
        command.args(["--mount", "--propagation", "slave", "--"]);
        let enter = network.command(node, "sh".as_ref());
        command.arg(enter.get_program()).args(enter.get_args());
        command.args(["-c", RUN, "sh", own_text]).stdin(Stdio::null()).process_group(0);
        let log = fs::File::create(own.join("said"))?;
        let child = command.stdout(log.try_clone()?).stderr(log).spawn()?;
        let mut server = Self { child };
        match server.wait(network, node) {
            Ok(()) => Ok(server),
            Err(error) => {
                let words = [LOG, "said"].map(|name| last_words(&own.join(name)));
                Err(Error::new(error.kind(), format!("nfs-ganesha: {error}{}", words.concat())))
            }
        }
    }

    /// Waits until it accepts connections on both ports.
    fn wait(&mut self, network: &Network, node: u32) -> Result<()> {
        let begin = Instant::now();
        let takes = |port| {
            let address = SocketAddr::from((network.address(node), port));
            network.within(node, || TcpStream::connect_timeout(&address, PATIENCE).is_ok())
        };
        while !(takes(NFS_PORT)? && takes(MOUNT_PORT)?) {
            if let Some(status) = self.child.try_wait()? {
                return Err(Error::other(format!("{status}")));
            }
            if begin.elapsed() > PATIENCE {
                return Err(Error::new(ErrorKind::TimedOut, "does not serve"));
            }
            sleep(LOOK);
        }
        Ok(())
    }

    /// Its process id.
    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }
}

impl Drop for NfsServer {
    fn drop(&mut self) {
        // The port mapper is in its process group.
        let killed = rustix::process::Pid::from_child(&self.child);
        let signal = rustix::process::Signal::KILL;
        let killed = rustix::process::kill_process_group(killed, signal);
        if let Err(error) = killed.map_err(Error::from).and_then(|()| self.child.wait()) {
            // In a destructor the error can only be printed.
            let _ = writeln!(stderr(), "an NFS server stays: {error}");
        }
    }
}

/// Attributes are read from the file at each request, as by NFS servers in a kernel.
fn configuration(export: &str, own: &str) -> String {
    format!(
        "NFS_CORE_PARAM {{ NFS_Port = {NFS_PORT}; MNT_Port = {MOUNT_PORT}; Protocols = 3; \
         Enable_NLM = false; Enable_RQUOTA = false; Enable_UDP = false; }}\n\
         NFSv4 {{ Graceless = true; RecoveryRoot = \"{own}\"; }}\n\
         NFS_KRB5 {{ Active_krb5 = false; }}\n\
         EXPORT {{ Export_Id = 1; Path = \"{export}\"; Pseudo = \"/x\"; Access_Type = RO; \
         Squash = No_Root_Squash; Protocols = 3; Transports = TCP; SecType = sys; \
         MaxRead = 1048576; PrefRead = 1048576; Attr_Expiration_Time = 0; \
         FSAL {{ Name = VFS; }} }}\n\
         LOG {{ Default_Log_Level = WARN; }}\n"
    )
}

/// The end of its log, if there is any.
fn last_words(path: &Path) -> String {
    let said = fs::read_to_string(path).unwrap_or_default();
    let mut lines: Vec<&str> = said.lines().rev().take(3).collect();
    lines.reverse();
    lines.iter().map(|line| format!("; {line}")).collect()
}
