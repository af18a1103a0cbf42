//! `weir join`: makes a data server and a credential on this machine for a cluster whose metadata
//! server is on another machine. From then on `weir up`, `weir mount` and `weir down` work here as
//! they do there.

use crate::args::Join;
use crate::cluster::awaiting::{await_targets, never_heard_of};
use crate::cluster::daemon::{cluster_id, data_name};
use crate::cluster::data_servers::{self, target_config};
use crate::cluster::invitation::{Invitation, read_line};
use crate::cluster::secret;
use crate::cluster::starting::start_daemons;
use crate::cluster::state::{Description, MetaDescription, ServerDescription, StateDir};
use crate::cluster::undo::Undo;
use crate::cluster::{grow, ports, replaced};
use crate::failure::{Done, Failure};
use crate::files::remote::connect;
use crate::output::print;
use crate::settings;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::Duration;
use weir_dataserver::DataServerConfig;
use weir_store::{Target, TargetIdentity};
use weir_types::{ErrorKind, ServerId, TargetId};

/// The longest to wait for a connection to the metadata server.
const REACH_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs `weir join`.
pub fn run(join: &Join) -> Done {
    let state = settings::state_dir(&join.cluster)?;
    let invitation = Invitation::from_line(&read_line(join.invitation.as_deref(), "weir invite")?)?;
    if let Some(old) = invitation.replaces {
        return replaced::join(join, &state, &invitation, old);
    }
    let targets = invitation.targets()?.len();
    if join.data.len() != targets {
        return Err(Failure::new(format!(
            "the invitation is for {targets} targets, and {} directories were given",
            join.data.len()
        ))
        .hint(
            "one --data DIR for each; `weir invite --targets N` on the first machine asks for N",
        ));
    }
    let dirs = join.data.iter().map(|dir| settings::absolute(dir)).collect::<Done<Vec<_>>>()?;
    let here = way_to(&invitation.metadata)?;
    require_none(&state)?;
    require_unused(&invitation)?;
    let existed = state.dir().exists();
    let lock = state.lock_new()?;
    // Another command may have made a cluster in the meantime.
    require_none(&state)?;
    if let Err(failure) = state.make() {
        // The directory contains nothing of the cluster, except perhaps the lock.
        let _ = std::fs::remove_file(state.dir().join(".lock"));
        if !existed {
            let _ = std::fs::remove_dir(state.dir());
        }
        return Err(failure);
    }
    let mut undo = Undo::of_new(&state);
    let started = undo
        .may_change(&dirs)
        .and_then(|()| make(join, &state, &invitation, here, &dirs))
        .and_then(|held| serve(&state, &mut undo, held));
    let failure = match started {
        Ok(description) => match follow(&state, &invitation, &description) {
            Ok(()) => return Ok(()),
            Err(failure) => match require_accepted(&invitation) {
                // The cluster may know the data server by now, and no other machine may use its
                // number. So everything that was made stays.
                Ok(()) => return Err(goes_on(failure, &description)),
                Err(refused) => refused,
            },
        },
        Err(failure) => failure,
    };
    undo.run();
    drop(lock);
    Err(failure)
}

/// Fails if the directory contains a cluster already.
fn require_none(state: &StateDir) -> Done {
    match state.exists() {
        false => Ok(()),
        true => {
            Err(Failure::new(format!("there is a cluster in {} already", state.dir().display()))
                .hint(
                    "`weir up` starts it; `weir down --purge` deletes it, for example after it was \
                     removed from its cluster; --name NAME makes another one",
                ))
        }
    }
}

/// Adds to a failure how to continue: what was made stays, and the invitation may have been used.
fn goes_on(failure: Failure, description: &Description) -> Failure {
    let names: Vec<String> = description.servers.iter().map(|s| data_name(s.id)).collect();
    let what = match names.is_empty() {
        true => "this machine has not joined yet".to_owned(),
        false => {
            let names = names.join(", ");
            format!("this machine has not joined yet: {names} runs here, and is not in the cluster")
        }
    };
    failure.about(what).hint(
        "do not join again: it continues by itself when it reaches the metadata server. `weir \
         status` shows its state, `weir log` the reason, and `weir up` starts what does not run",
    )
}

/// The address from which this machine reaches the metadata server. Other machines reach this one
/// there.
fn way_to(metadata: &str) -> Done<IpAddr> {
    let address: SocketAddr = metadata
        .parse()
        .map_err(|_| Failure::new(format!("the invitation names no address: {metadata}")))?;
    let reach = || TcpStream::connect_timeout(&address, REACH_TIMEOUT)?.local_addr();
    reach().map(|local| local.ip()).map_err(|e| {
        Failure::new(format!("the metadata server cannot be reached at {metadata}: {e}")).hint(
            "does it run (`weir status` on its machine), does it listen for others (`weir up \
             --listen ADDRESS`), is a firewall between?",
        )
    })
}

/// The port after that of the metadata server.
fn after_metadata(metadata: &str) -> u16 {
    metadata.parse().map_or(0, |at: SocketAddr| at.port()).saturating_add(1)
}

/// Fails if the server's number is in use: the cluster would take two machines with one number for
/// a machine that has moved.
fn require_unused(invitation: &Invitation) -> Done {
    let map = connect(&invitation.credential()?, "join")?.cluster_map()?;
    match map.servers.iter().find(|server| server.server == ServerId(invitation.server)) {
        Some(server) => Err(Failure::new(format!(
            "the invitation has been used: data server {} is at {} ({})",
            invitation.server, server.tcp, server.host
        ))
        .hint("each machine needs one of its own: `weir invite` on the first machine")),
        None => require_accepted(invitation),
    }
}

/// Fails if the data server was removed from the cluster.
fn require_accepted(invitation: &Invitation) -> Done {
    if invitation.server == 0 {
        return Ok(());
    }
    let server = ServerId(invitation.server);
    let (key, id) = (invitation.server_key()?, cluster_id(&invitation.id)?);
    // Only the leader of several metadata servers can answer.
    let asked = invitation
        .metadata_servers()
        .into_iter()
        .map(|metadata| weir_dataserver::try_key(&metadata, server, key.clone(), id));
    let mut refused = asked.filter_map(Result::err).filter(|e| e.kind == ErrorKind::AuthFailed);
    match refused.next() {
        Some(e) => Err(Failure::from(e).about("the invitation is good no more").hint(
            "each machine needs one of its own, also one that was removed and comes back: `weir \
                 invite` on the first machine",
        )),
        // If no server answers now, the data server continues to ask.
        None => Ok(()),
    }
}

/// Makes everything. The description comes last, and from then on this machine has a cluster.
fn make(
    join: &Join,
    state: &StateDir,
    invitation: &Invitation,
    here: IpAddr,
    dirs: &[PathBuf],
) -> Done<ports::Held> {
    let others = (2..).zip(invitation.others.iter().cloned());
    let others = others.map(|(id, address)| MetaDescription { id, address, here: None });
    let mut description = Description {
        name: invitation.cluster.clone(),
        id: invitation.id.clone(),
        metadata: invitation.metadata.clone(),
        joined: true,
        stripe_unit_bytes: 0,
        copies: 0,
        metrics: join.metrics,
        protection: None,
        made_mountpoints: Vec::new(),
        adding: None,
        servers: Vec::new(),
        invited: Vec::new(),
        metas: others.collect(),
        etcd: Vec::new(),
        journal: Vec::new(),
    };
    invitation.credential()?.write_new(&state.credential_file())?;
    let mut held = ports::Held::default();
    let targets = invitation.targets()?;
    if !targets.is_empty() {
        let listen = join.listen.unwrap_or(here);
        held = match join.port {
            Some(port) => ports::from_base(listen, port, 1)?,
            // The same port on each machine, so that a firewall can be set up for it.
            None => ports::usual(listen, after_metadata(&invitation.metadata), 1)?.0,
        };
        let port = held.ports.first().copied().unwrap_or_default();
        let numbers: Vec<u32> = targets.iter().map(|(target, _)| *target).collect();
        description.servers.push(ServerDescription {
            id: invitation.server,
            address: SocketAddr::new(listen, port).to_string(),
            targets: numbers,
            replacing: Vec::new(),
        });
        make_server(join, state, &description, invitation, dirs, here)?;
    }
    state.set_description(&description)?;
    Ok(held)
}

fn make_server(
    join: &Join,
    state: &StateDir,
    description: &Description,
    invitation: &Invitation,
    dirs: &[PathBuf],
    here: IpAddr,
) -> Done {
    let Some(server) = description.servers.first() else { return Ok(()) };
    let next = server.address.parse().map_or(0, |at: SocketAddr| at.port()).saturating_add(1);
    let (metrics, _held) = match (join.metrics, join.port) {
        (Some(at), None) => {
            let (held, _) = ports::usual(at, next, 1)?;
            let addresses = held.ports.iter().map(|port| SocketAddr::new(at, *port).to_string());
            (addresses.collect(), held)
        }
        (at, port) => ports::for_metrics(at, port.map(|_| next), 1)?,
    };
    let who = (server.id, server.address.as_str());
    let new = data_servers::new_config(state, description, who, &[], metrics.into_iter().next());
    let everywhere = join.listen.is_some_and(|listen| listen.is_unspecified());
    let port = server.address.parse().map_or(0, |address: SocketAddr| address.port());
    let config = DataServerConfig {
        domain: join.domain.clone(),
        // Other machines may not be able to look up this machine's name.
        advertise: everywhere.then(|| SocketAddr::new(here, port).to_string()),
        targets: server.targets.iter().map(|target| target_config(state, *target)).collect(),
        ..new
    };
    secret::write_key(&config.server_key_file, &invitation.server_key()?)?;
    for ((target, key), dir) in invitation.targets()?.into_iter().zip(dirs) {
        grow::make_link(&state.target_dir(target), dir)?;
        secret::write_key(&target_config(state, target).key_file, &key)?;
        let identity = TargetIdentity {
            cluster: cluster_id(&description.id)?,
            target: TargetId(target),
            server: ServerId(server.id),
        };
        match Target::create(dir, identity) {
            // The target was made by a command that was interrupted, or that could not reach the
            // cluster.
            Err(e) if e.kind == ErrorKind::Exists => {
                match Target::open(dir)?.identity() == identity {
                    true => {}
                    false => {
                        return Err(Failure::from(e).hint(
                        "if it belonged to a cluster that this machine has left, or is not needed \
                         any more, delete what is in it; otherwise name another directory with \
                         --data",
                    ));
                    }
                }
            }
            result => result?,
        }
    }
    data_servers::write(state, &config)
}

/// Starts the data server.
fn serve(state: &StateDir, undo: &mut Undo, held: ports::Held) -> Done<Description> {
    let description = state.description()?;
    start_daemons(state, &description, undo)?;
    drop(held);
    Ok(description)
}

/// Waits until the cluster has the targets of the data server.
fn follow(state: &StateDir, invitation: &Invitation, description: &Description) -> Done {
    let client = connect(&invitation.credential()?, "join")?;
    let missing = await_targets(&client, &description.targets())?;
    if missing.offline > 0 {
        return Err(never_heard_of(missing.offline));
    }
    let mut text = format!("Joined cluster {}", description.name);
    for server in &description.servers {
        let name = data_name(server.id);
        text += &format!(": {name} serves {} targets on {}", server.targets.len(), server.address);
    }
    let dir = state.dir().display();
    text += &format!("\nState, keys and logs are in {dir}\n\n  weir mount DIRECTORY\n");
    text += "  weir status\n  weir up    (after a restart of the machine)\n";
    print(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_data_server_that_joins_is_behind_the_metadata_server_if_no_port_is_named() {
        assert_eq!(after_metadata("10.0.0.1:7700"), 7701);
        assert_eq!(after_metadata("[fe80::1]:65535"), 65_535);
    }
}
