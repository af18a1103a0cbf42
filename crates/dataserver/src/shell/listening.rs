//! What a server is reached by and known by before it serves: its listeners, and the runs of its
//! targets' disks.

use crate::config::{DataServerConfig, TargetConfig};
use weir_host::fs;
use weir_net::{Address, Listener, host_name, random_bytes};
use weir_types::{Error, ErrorKind, Result, TargetId};

/// The listeners and their addresses.
pub(crate) struct Listening {
    pub(crate) listeners: Vec<Listener>,
    /// Bound address of the first listener.
    pub(crate) bound: String,
    /// Addresses that clients are told.
    pub(crate) tcp: String,
    pub(crate) unix: String,
}

pub(crate) fn listen(config: &DataServerConfig) -> Result<Listening> {
    let wanted = Address::parse(&config.listen)?;
    let Address::Tcp(_) = wanted else {
        return Err(Error::new(
            ErrorKind::InvalidArgument,
            "`listen` must be `address:port`; a Unix socket goes into `unix`",
        ));
    };
    let mut listeners = vec![Listener::bind(&wanted)?];
    let bound = listeners[0].address().to_string();
    let port = bound.rsplit_once(':').map_or("0", |(_, port)| port);
    let everywhere = ["0.0.0.0:", "[::]:"].iter().any(|any| bound.starts_with(any));
    let tcp = match &config.advertise {
        Some(advertise) => advertise.clone(),
        None if everywhere => format!("{}:{port}", host_name()),
        None => bound.clone(),
    };
    let mut unix = String::new();
    if let Some(path) = &config.unix {
        listeners.push(Listener::bind(&Address::Unix(path.clone()))?);
        unix = path.display().to_string();
    }
    Ok(Listening { listeners, bound, tcp, unix })
}

/// Of each target the run of its disk's memory: the same as long as nothing that was confirmed can
/// have been lost, until the machine starts anew or the file system that the target is on is mounted
/// anew. (Then it may have lost what was not synced, without anybody's knowing: a disk that was
/// reset, say.)
pub(crate) fn runs(config: &DataServerConfig) -> Result<Vec<(TargetId, u64)>> {
    let run = |target: &TargetConfig| {
        // One of which nothing is known may have lost something.
        let run = fs::Directory::open(&target.dir).ok().and_then(|dir| dir.memory_run());
        let run = match run {
            Some(run) => mixed(mixed(run as u64) ^ (run >> 64) as u64),
            None => u64::from_le_bytes(random_bytes()?),
        };
        Ok((TargetId(target.target), run))
    };
    config.targets.iter().map(run).collect()
}

/// Mixes a number, so that near numbers give distant results.
fn mixed(mut n: u64) -> u64 {
    n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}
