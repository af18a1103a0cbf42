//! `weir meta add --on` and `weir meta join`: metadata servers on several machines. Their journal is
//! on etcd that the user has set up on several machines.
//!
//! Invariants
//! - The line that goes from one machine to the other has the master key. It is printed, or written
//!   to a file of mode 0600, and read from a file or from standard input.
//! - A machine that takes part has the metadata only after its server has got all of it from the one
//!   that leads: nothing is made in its directory before.

use crate::args::{MetaAdd, MetaJoin};
use crate::cluster::daemon::{cluster_id, to_text};
use crate::cluster::invitation::{Line, read_line};
use crate::cluster::meta_change::{
    MAX_METAS, elsewhere, next_number, require_alone, require_down, require_first,
};
use crate::cluster::metas::{self, meta_name};
use crate::cluster::state::{Description, MetaDescription, StateDir};
use crate::cluster::undo::Undo;
use crate::cluster::{keys, ports, secret};
use crate::failure::{Done, Failure};
use crate::output::print;
use crate::settings;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use weir_metaserver::MetaServerConfig;
use weir_wire::Key;
use weir_wire::key::MasterKey;

/// The prefix of a line for `weir meta join`.
const LINE: Line = Line { head: "weir-meta-invitation-", version: 1, by: "weir meta add --on" };

/// What another machine needs for a metadata server.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MetaInvitation {
    /// The name of the cluster, for people.
    cluster: String,
    /// The identity of the cluster: 32 hexadecimal digits.
    id: String,
    master_key: String,
    /// The `address:port` of the first metadata server.
    metadata: String,
    /// Number and address of the other ones.
    metas: Vec<(u32, String)>,
    etcd: Vec<String>,
    /// What the configuration of the first metadata server says, without what is of its machine.
    settings: toml::Table,
}

/// Runs `weir meta add --on`.
pub fn add(add: &MetaAdd) -> Done {
    let state = settings::state_dir(&add.cluster)?;
    let lock = state.lock()?;
    let mut description = state.description()?;
    require_first(&description)?;
    require_down(&state, &description)?;
    if !description.etcd.is_empty() {
        return Err(Failure::new("no other machine reaches the etcd of this cluster").hint(
            "`weir meta remove` those of this machine first; then `weir meta add --on`, with an \
             etcd on several machines (docs/high-availability.md)",
        ));
    }
    let first: Option<SocketAddr> = description.metadata.parse().ok();
    if first.is_none_or(|first| first.ip().is_loopback()) {
        return Err(Failure::new(format!(
            "no other machine reaches this cluster: its metadata server listens on {}",
            description.metadata
        ))
        .hint("make a cluster with `weir up --listen ADDRESS`"));
    }
    if 1 + description.metas.len() + add.on.len() > MAX_METAS as usize {
        return Err(Failure::new(format!("a cluster has at most {MAX_METAS} metadata servers")));
    }
    require_distinct(&add.on, first)?;
    let begins = description.journal.is_empty();
    if begins {
        require_alone(&state)?;
        if add.etcd.is_empty() {
            return Err(Failure::new("--on needs --etcd: the addresses of etcd").hint(
                "several metadata servers share a journal on etcd: docs/high-availability.md says \
                 how to set it up on three machines",
            ));
        }
        description.journal.clone_from(&add.etcd);
    } else if !add.etcd.is_empty() && add.etcd != description.journal {
        return Err(Failure::new(format!("the journal is on {}", description.journal.join(", ")))
            .hint("leave out --etcd"));
    }
    // A wrong address is noticed here, and not when the cluster does not come up.
    let silent = |error| Failure::from(error).about("etcd does not answer");
    let journal = metas::journal(&state, &description)?;
    let head = journal.head().map_err(silent)?;
    if begins && head.is_some() {
        return Err(Failure::new("etcd has a journal of this cluster already, of before").hint(format!(
            "if no metadata server needs it any more: `etcdctl --endpoints {} del --prefix /weir/{}/`",
            description.journal.join(","),
            description.id
        )));
    }
    let next = next_number(&description, &journal.removed().map_err(silent)?);
    // Those that a command before has added get the line once more.
    let is_new = |on: &String| description.metas.iter().all(|meta| meta.address != *on);
    let new: Vec<String> = add.on.iter().map(SocketAddr::to_string).filter(is_new).collect();
    let new = new.into_iter().zip(next..);
    let new = new.map(|(address, id)| MetaDescription { id, address, here: Some(false) });
    description.metas.extend(new);
    state.set_description(&description)?;
    metas::settle(&state, &description)?;
    drop(lock);
    let invitation = MetaInvitation {
        cluster: description.name.clone(),
        id: description.id.clone(),
        master_key: secret::read_key(&state.key_file("master"))?.to_hex(),
        metadata: description.metadata.clone(),
        metas: description.metas.iter().map(|meta| (meta.id, meta.address.clone())).collect(),
        etcd: description.journal.clone(),
        settings: metas::common_settings(&state)?,
    };
    crate::logging::say(&format!(
        "weir: give this line to `weir meta join` on each of those machines; it has the master key. \
         Then `weir up` on all machines.\n{}",
        elsewhere(&description)
    ));
    LINE.hand_out(&invitation, add.output.as_deref())
}

/// Fails unless each of these can be the address of one other machine.
fn require_distinct(on: &[SocketAddr], first: Option<SocketAddr>) -> Done {
    for (place, at) in on.iter().enumerate() {
        let why = if at.ip().is_loopback() || at.ip().is_unspecified() {
            "no other machine reaches that address"
        } else if at.port() == 0 {
            "a port is needed"
        } else if first == Some(*at) {
            "the first metadata server has that address"
        } else if on[..place].contains(at) {
            "it is there twice"
        } else {
            continue;
        };
        return Err(Failure::new(format!("--on {at}: {why}")).hint(
            "one address for each metadata server: that of its machine, and a free port there",
        ));
    }
    Ok(())
}

/// Runs `weir meta join`.
pub fn join(join: &MetaJoin) -> Done {
    let state = settings::state_dir(&join.cluster)?;
    let invitation: MetaInvitation =
        LINE.parse(&read_line(join.invitation.as_deref(), LINE.by)?)?;
    let (own, at) = own(&invitation)?;
    let exists = state.exists();
    let lock = if exists { state.lock()? } else { state.lock_new()? };
    if !exists {
        state.make()?;
    }
    let made = set_up(&state, exists, &invitation, (own, at));
    if made.is_err() && !exists {
        Undo::of_new(&state).run();
    }
    drop(lock);
    made?;
    print(&format!(
        "{} of cluster {} is set up on {at}. `weir up` here and on the other machines starts it.\n\
         State, keys and logs are in {}\n",
        meta_name(own),
        invitation.cluster,
        state.dir().display()
    ))
}

/// Makes the configuration of the metadata server. The description comes last.
fn set_up(
    state: &StateDir,
    exists: bool,
    invitation: &MetaInvitation,
    (own, at): (u32, SocketAddr),
) -> Done {
    let master = Key::from_hex(&invitation.master_key)
        .ok_or_else(|| Failure::new("the line has an invalid key"))?;
    let mut description = match exists {
        true => state.description()?,
        false => described(invitation, own),
    };
    if !description.joined || description.id != invitation.id {
        return Err(Failure::new(format!(
            "this machine is not of the cluster {}, or is its first one",
            invitation.cluster
        ))
        .hint("--name makes it a machine of another cluster, too"));
    }
    require_down(state, &description)?;
    description.metas = metas_of(invitation, own);
    description.journal.clone_from(&invitation.etcd);
    let master_file = state.key_file("master");
    keys::write_key(&master_file, &master)?;
    if !exists {
        let addresses = metas::addresses(state, &description);
        keys::write_first_credential(state, &description, &MasterKey(master), addresses)?;
    }
    let name = meta_name(own);
    let socket = state.socket_file(&name).map(|path| path.display().to_string());
    let listen = socket.into_iter().chain([at.to_string()]).collect();
    let config = MetaServerConfig {
        cluster: Some(cluster_id(&description.id)?),
        journal: metas::journal_config(state, &description, &name),
        ..MetaServerConfig::new(state.meta_dir(&name), listen, master_file)
    };
    metas::write_config(state, &name, &to_text(&config)?, invitation.settings.clone())?;
    metas::settle(state, &description)?;
    state.set_description(&description)
}

/// The number and address of the metadata server that is for this machine: it can listen there.
fn own(invitation: &MetaInvitation) -> Done<(u32, SocketAddr)> {
    let mut failure = Failure::new("the line names no metadata server");
    for (id, address) in &invitation.metas {
        let at: SocketAddr =
            address.parse().map_err(|_| Failure::new(format!("{address}: not an address")))?;
        match ports::from_base(at.ip(), at.port(), 1) {
            Ok(_) => return Ok((*id, at)),
            Err(error) => failure = error,
        }
    }
    Err(failure.hint("none of the addresses of `weir meta add --on` is a free one of this machine"))
}

fn metas_of(invitation: &MetaInvitation, own: u32) -> Vec<MetaDescription> {
    let meta = |(id, address): &(u32, String)| MetaDescription {
        id: *id,
        address: address.clone(),
        here: Some(*id == own),
    };
    invitation.metas.iter().map(meta).collect()
}

fn described(invitation: &MetaInvitation, own: u32) -> Description {
    Description {
        name: invitation.cluster.clone(),
        id: invitation.id.clone(),
        metadata: invitation.metadata.clone(),
        joined: true,
        stripe_unit_bytes: 0,
        copies: 0,
        metrics: None,
        protection: None,
        made_mountpoints: Vec::new(),
        adding: None,
        servers: Vec::new(),
        invited: Vec::new(),
        metas: metas_of(invitation, own),
        etcd: Vec::new(),
        journal: invitation.etcd.clone(),
    }
}
