//! `weir key` and `weir target create`: credentials of clients (see [`crate::cluster::clients`]),
//! keys of servers, and targets. A client's key is derived from the cluster's master key and the
//! client's number, so the metadata server needs no table of keys and a new credential works at
//! once.

use crate::args::{Key, KeyServer, TargetCreate};
use crate::cluster::daemon::{cluster_id, data_name, to_text};
use crate::cluster::secret;
use crate::cluster::state::{Description, StateDir, make_dir};
use crate::cluster::{clients, metas};
use crate::failure::{Done, Failure};
use crate::output::print;
use crate::settings;
use std::path::{Path, PathBuf};
use weir_connect::Credential;
use weir_dataserver::{DataServerConfig, TargetConfig};
use weir_store::TargetIdentity;
use weir_types::{ClientId, KeyGeneration, ServerId, TargetId};
use weir_wire::Key as SecretKey;
use weir_wire::Level;
use weir_wire::key::MasterKey;

/// The credential that `weir up` makes.
pub const FIRST_CLIENT: ClientId = ClientId(1);

/// Runs `weir key`.
pub fn run(key: &Key) -> Done {
    match key {
        Key::New(new) => clients::make(new),
        Key::List(list) => clients::show(list),
        Key::Revoke(revoke) => clients::revoke(revoke),
        Key::Rotate(rotate) => clients::rotate(rotate),
        Key::Server(server) => make_server(server),
    }
}

/// Writes the credential that commands on this machine use.
pub fn write_first_credential(
    state: &StateDir,
    description: &Description,
    master: &MasterKey,
    metadata: Vec<String>,
) -> Done {
    let credential = Credential {
        cluster: description.name.clone(),
        client: FIRST_CLIENT,
        key: master.client(FIRST_CLIENT),
        metadata,
        note: "made by weir up".to_owned(),
        protection: Level::Args,
    };
    Ok(credential.write_new(&state.credential_file())?)
}

/// Writes the keys of a data server and of its targets.
pub fn write_server_keys(config: &DataServerConfig, master: &MasterKey) -> Done {
    write_server_key(&config.server_key_file, ServerId(config.server), master)?;
    config.targets.iter().try_for_each(|target| write_target_key(target, master))
}

/// Writes the key of a data server.
pub fn write_server_key(path: &Path, server: ServerId, master: &MasterKey) -> Done {
    write_key(path, &master.server(server, KeyGeneration(1)))
}

/// Writes the key of a target.
pub fn write_target_key(target: &TargetConfig, master: &MasterKey) -> Done {
    write_key(&target.key_file, &master.target(TargetId(target.target), KeyGeneration(1)))
}

/// Writes a key that is derived from the master key, unless it exists. The rest of an interrupted
/// command is replaced, another key never.
pub fn write_key(path: &Path, key: &SecretKey) -> Done {
    if path.exists() {
        match weir_connect::secret::read(path).map(|text| SecretKey::from_hex(&text)) {
            Ok(Some(found)) if found == *key => return Ok(()),
            Ok(None) => std::fs::remove_file(path).map_err(|e| Failure::file(path, e))?,
            Ok(Some(_)) | Err(_) => {}
        }
    }
    secret::write_key(path, key)
}

/// Makes everything for a further data server except its targets.
fn make_server(new: &KeyServer) -> Done {
    let state = settings::state_dir(&new.cluster)?;
    let description = state.description()?;
    let here = description.servers.iter().map(|s| (s.id, &s.targets));
    let mut known = here.chain(description.invited.iter().map(|i| (i.server, &i.targets)));
    let used = known.find(|(server, targets)| {
        *server == new.server || targets.iter().any(|target| new.targets.contains(target))
    });
    if let Some((server, targets)) = used {
        return Err(Failure::new(format!(
            "server {server} with targets {targets:?} exists: use free numbers"
        )));
    }
    let master = MasterKey(secret::read_key(&state.key_file("master"))?);
    make_dir(&new.output, 0o700)?;
    let name = data_name(new.server);
    let target = |number: &u32| TargetConfig {
        target: *number,
        dir: PathBuf::from(format!("target-{number}")),
        key_file: PathBuf::from(format!("target-{number}.key")),
    };
    let config = DataServerConfig {
        domain: new.domain.clone(),
        metadata: metas::addresses_for_others(&description),
        targets: new.targets.iter().map(target).collect(),
        ..DataServerConfig::new(
            new.server,
            new.listen.clone(),
            PathBuf::from(format!("server-{}.key", new.server)),
        )
    };
    // Paths in the file are relative to it, but the keys are written relative to the working
    // directory.
    let mut here = config.clone();
    crate::cluster::daemon::RelativePaths::resolve(&mut here, &new.output);
    write_server_keys(&here, &master)?;
    let file = new.output.join(format!("{name}.toml"));
    secret::write_new_public(&file, &to_text(&config)?)?;
    let mut text = format!(
        "{}: keys and configuration of data server {}. Copy the directory to its machine, then:\n",
        new.output.display(),
        new.server
    );
    for target in &new.targets {
        text += &format!(
            "  weir target create target-{target} --target {target} --server {} --cluster-id {}\n",
            new.server, description.id
        );
    }
    print(&(text + &format!("  weir data --config {name}.toml\n")))
}

/// Runs `weir target create`.
pub fn create_target(create: &TargetCreate) -> Done {
    let identity = TargetIdentity {
        cluster: cluster_id(&create.cluster_id)?,
        target: TargetId(create.target),
        server: ServerId(create.server),
    };
    Ok(weir_store::Target::create(&create.dir, identity)?)
}
