//! `weir server add` and `weir target add`.

use crate::args::{ServerAdd, TargetAdd};
use crate::cluster::awaiting::{await_targets, never_heard_of};
use crate::cluster::control;
use crate::cluster::daemon::data_name;
use crate::cluster::grow;
use crate::cluster::keys;
use crate::cluster::ports;
use crate::cluster::secret;
use crate::cluster::servers::{self, listed};
use crate::cluster::state::{Adding, Description, StateDir, make_dir};
use crate::failure::{Done, Failure};
use crate::files::remote::connect;
use crate::output::print;
use crate::settings;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use weir_client::Client;
use weir_connect::Credential;
use weir_dataserver::TargetConfig;
use weir_types::TargetId;
use weir_wire::key::MasterKey;

/// Runs `weir server add`.
pub fn add_server(add: &ServerAdd) -> Done {
    let state = settings::state_dir(&add.cluster)?;
    let _lock = state.lock()?;
    let mut description = begin(&state)?;
    let client = connect(&Credential::read(&state.credential_file())?, "server add")?;
    let server = client.administrator()?.free_numbers()?.server.0;
    let server = description.free_server(server);
    let metadata: SocketAddr = description.metadata.parse().map_err(|_| {
        Failure::new(format!("metadata = \"{}\": not an address", description.metadata))
    })?;
    let held = match add.port {
        Some(port) => ports::from_base(metadata.ip(), port, 1)?,
        None if metadata.ip().is_loopback() => ports::free(metadata.ip(), 1)?,
        // A port among those that a firewall permits.
        None => ports::usual(metadata.ip(), description.last_port().saturating_add(1), 1)?.0,
    };
    let address = held.ports.first().map(|port| SocketAddr::new(metadata.ip(), *port).to_string());
    let dirs = match add.target_dirs.is_empty() {
        true => vec![None; add.targets.unwrap_or(1) as usize],
        false => absolute(&add.target_dirs)?,
    };
    let new = New { server, address, dirs, replaces: None };
    let (targets, made) = new.make(&state, &mut description, &client);
    if targets.is_empty() {
        return made;
    }
    let started = serve(&state, &client, server, &targets);
    drop(held);
    made.and(started)
}

/// Runs `weir target add`.
pub fn add_targets(add: &TargetAdd) -> Done {
    let state = settings::state_dir(&add.cluster)?;
    let _lock = state.lock()?;
    let mut description = begin(&state)?;
    let client = connect(&Credential::read(&state.credential_file())?, "target add")?;
    let dirs = match add.target_dirs.is_empty() {
        true => vec![None],
        false => absolute(&add.target_dirs)?,
    };
    if description.servers.iter().all(|server| server.id != add.server) {
        return elsewhere(&state, &description, &client, add);
    }
    if add.output.is_some() {
        return Err(Failure::new(format!("data server {} is of this machine", add.server))
            .hint("leave out --output: nothing has to be copied"));
    }
    let new = New { server: add.server, address: None, dirs, replaces: None };
    new.add_here(&state, &mut description, &client)
}

/// Reads the description of the cluster after unfinished changes have been finished.
pub fn begin(state: &StateDir) -> Done<Description> {
    let mut description = state.description()?;
    match grow::finish(state, &mut description) {
        Ok(Some(server)) => control::restart(state, &data_name(server))?,
        Ok(None) => {}
        Err(failure) => failure.say(),
    }
    Ok(description)
}

fn absolute(dirs: &[PathBuf]) -> Done<Vec<Option<PathBuf>>> {
    dirs.iter().map(|dir| settings::absolute(dir).map(Some)).collect()
}

/// The targets to add.
pub struct New {
    /// The number of the server.
    pub server: u32,
    /// The server's address, if the server is new.
    pub address: Option<String>,
    /// The directory of each target, unless it is in the state directory.
    pub dirs: Vec<Option<PathBuf>>,
    /// The target that the new one replaces; there is only one new target then.
    pub replaces: Option<u32>,
}

impl New {
    /// Adds targets to a server of this machine and makes the server serve them.
    pub fn add_here(
        self,
        state: &StateDir,
        description: &mut Description,
        client: &Client,
    ) -> Done {
        let server = self.server;
        let (targets, made) = self.make(state, description, client);
        if !targets.is_empty() {
            serve(state, client, server, &targets)?;
        }
        made
    }

    /// Makes one target after the other until one fails. Returns those that were made, and the
    /// result.
    fn make(
        self,
        state: &StateDir,
        description: &mut Description,
        client: &Client,
    ) -> (Vec<u32>, Done) {
        let (mut made, mut address) = (Vec::new(), self.address);
        for dir in self.dirs {
            let target = match free_target(client, description) {
                Ok(target) => target,
                Err(failure) => return (made, Err(failure)),
            };
            let (server, address, replaces) = (self.server, address.take(), self.replaces);
            let adding = Adding { server, address, target, dir, replaces };
            if let Err(failure) = grow::add(state, description, adding) {
                return (made, Err(failure));
            }
            made.push(target);
        }
        (made, Ok(()))
    }
}

/// Returns a number that no target has or had, whether the cluster has heard of that target or not.
fn free_target(client: &Client, description: &Description) -> Done<u32> {
    let target = client.administrator()?.free_numbers()?.target.0;
    Ok(description.free_target(target))
}

/// Makes a server of this machine serve its new targets.
pub fn serve(state: &StateDir, client: &Client, server: u32, targets: &[u32]) -> Done {
    let name = data_name(server);
    control::restart(state, &name)?;
    let missing = await_targets(client, targets)?;
    if missing.offline > 0 {
        return Err(never_heard_of(missing.offline));
    }
    let numbers: Vec<TargetId> = targets.iter().map(|target| TargetId(*target)).collect();
    let mut text = format!("{name} serves target {}\n", listed(&numbers));
    for (count, what) in
        [(missing.out_of_service, "out of service"), (missing.syncing, "not up to date yet")]
    {
        if count > 0 {
            text += &format!("{count} of them are {what}: `weir status` says more\n");
        }
    }
    print(&(text + "`weir rebalance` moves copies there\n"))
}

/// Writes the keys of targets for a server of another machine, and prints what to do there.
fn elsewhere(
    state: &StateDir,
    description: &Description,
    client: &Client,
    add: &TargetAdd,
) -> Done {
    let member = servers::one(client, add.server)?;
    let (name, host) = (data_name(add.server), &member.entry.host);
    let Some(output) = &add.output else {
        return Err(Failure::new(format!("{name} runs on {host}, and was not made here"))
            .hint("give --output DIRECTORY for the keys of its new targets"));
    };
    let master = MasterKey(secret::read_key(&state.key_file("master"))?);
    make_dir(output, 0o700)?;
    let first = free_target(client, description)?;
    let dirs: Vec<PathBuf> = match add.target_dirs.is_empty() {
        true => vec![PathBuf::from(format!("target-{first}"))],
        false => add.target_dirs.clone(),
    };
    let mut text = format!(
        "{}: keys of new targets of {name}. Copy them over a secure connection to {host}, beside \
         {name}.toml, then there:\n",
        output.display()
    );
    let mut entries = String::new();
    for (target, dir) in (first..).zip(&dirs) {
        let key = format!("target-{target}.key");
        let config = TargetConfig { target, dir: dir.clone(), key_file: output.join(&key) };
        keys::write_target_key(&config, &master)?;
        text += &format!(
            "  weir target create {} --target {target} --server {} --cluster-id {}\n",
            dir.display(),
            add.server,
            description.id
        );
        entries += &format!(
            "  [[targets]]\n  target = {target}\n  dir = {}\n  key_file = \"{key}\"\n",
            quoted(dir)
        );
    }
    text += &format!("add to the end of {name}.toml\n{entries}and restart the server.\n");
    print(&text)
}

/// Quotes a path as TOML does.
fn quoted(path: &Path) -> String {
    toml::Value::String(path.display().to_string()).to_string()
}
