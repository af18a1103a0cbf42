//! The metadata servers of this machine: their names and addresses, and the configuration files
//! that name them. `cluster.toml` says which there are; the files of all daemons and the
//! credentials follow from it.

use crate::cluster::daemon::{META, cluster_id, data_name, to_text};
use crate::cluster::etcd;
use crate::cluster::secret;
use crate::cluster::state::{Description, MetaDescription, StateDir, make_dir};
use crate::failure::{Done, Failure};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weir_metaserver::{Journal, JournalConfig, MetaServerConfig};

/// The name of the daemon of a metadata server.
pub fn meta_name(id: u32) -> String {
    if id == 1 { META.to_owned() } else { format!("{META}-{id}") }
}

/// The names of the daemons of all metadata servers of this machine, with their addresses.
pub fn of_this_machine(description: &Description) -> Vec<(String, String)> {
    let by_default = !description.joined;
    let first = by_default.then(|| (META.to_owned(), description.metadata.clone()));
    let others = description.metas.iter().filter(|meta| meta.here.unwrap_or(by_default));
    let others = others.map(|meta| (meta_name(meta.id), meta.address.clone()));
    first.into_iter().chain(others).collect()
}

fn all(description: &Description) -> Vec<(String, String)> {
    let first = (META.to_owned(), description.metadata.clone());
    let others = description.metas.iter().map(|meta| (meta_name(meta.id), meta.address.clone()));
    [first].into_iter().chain(others).collect()
}

/// The addresses by which daemons and clients on this machine reach the metadata servers.
pub fn addresses(state: &StateDir, description: &Description) -> Vec<String> {
    let here = of_this_machine(description);
    let of_one = |(name, address): (String, String)| {
        let socket = state.socket_file(&name).map(|path| path.display().to_string());
        let is_here = here.iter().any(|(own, _)| *own == name);
        socket.filter(|_| is_here).into_iter().chain([address])
    };
    all(description).into_iter().flat_map(of_one).collect()
}

/// The addresses by which other machines reach the metadata servers.
pub fn addresses_for_others(description: &Description) -> Vec<String> {
    all(description).into_iter().map(|(_, address)| address).collect()
}

/// The addresses of etcd; none if there is no journal.
fn endpoints(state: &StateDir, description: &Description) -> Vec<String> {
    match description.journal.is_empty() {
        true => etcd::endpoints(state, description),
        false => description.journal.clone(),
    }
}

/// The journal of the cluster.
pub fn journal(state: &StateDir, description: &Description) -> Done<Arc<dyn Journal>> {
    etcd::journal(&endpoints(state, description), description)
}

/// The part of the configuration of a metadata server that names the journal.
pub fn journal_config(
    state: &StateDir,
    description: &Description,
    name: &str,
) -> Option<JournalConfig> {
    let etcd = endpoints(state, description);
    (!etcd.is_empty()).then(|| JournalConfig { etcd, member: name.to_owned() })
}

/// Makes the directory and the configuration of a further metadata server. Its metadata are those
/// of the first one, which does not run.
pub fn make(
    state: &StateDir,
    description: &Description,
    meta: &MetaDescription,
    metrics: Option<String>,
) -> Done {
    let name = meta_name(meta.id);
    let dir = state.meta_dir(&name);
    if dir.exists() {
        // An interrupted command has left this directory: the description does not name it.
        std::fs::remove_dir_all(&dir).map_err(|e| Failure::file(&dir, e))?;
    }
    make_dir(&dir, 0o700)?;
    copy_files(&state.metadata_dir(), &dir)?;
    let master = state.key_file("master");
    let socket = state.socket_file(&name).map(|path| path.display().to_string());
    let listen = socket.into_iter().chain([meta.address.clone()]).collect();
    let config = MetaServerConfig {
        cluster: Some(cluster_id(&description.id)?),
        metrics,
        journal: journal_config(state, description, &name),
        ..MetaServerConfig::new(dir, listen, master)
    };
    write_config(state, &name, &to_text(&config)?, common_settings(state)?)
}

/// What the configuration of the first metadata server says, but for what others have of their own:
/// times, sizes and the protection are the same for all metadata servers.
pub fn common_settings(state: &StateDir) -> Done<toml::Table> {
    let mut table = read(&state.config_file(META))?;
    for own in ["cluster", "dir", "listen", "master_key_file", "metrics", "journal"] {
        table.remove(own);
    }
    Ok(table)
}

/// Writes the configuration of a metadata server, with these settings in the place of its own.
pub fn write_config(state: &StateDir, name: &str, own: &str, common: toml::Table) -> Done {
    let mut table: toml::Table =
        own.parse().map_err(|e: toml::de::Error| Failure::new(e.to_string()))?;
    table.extend(common);
    write(&state.config_file(name), &table)
}

/// Copies the files of a directory, durably.
fn copy_files(from: &Path, to: &Path) -> Done {
    let about = |e| Failure::file(from, e);
    for entry in std::fs::read_dir(from).map_err(about)? {
        let entry = entry.map_err(about)?;
        let copy = to.join(entry.file_name());
        let copied = std::fs::copy(entry.path(), &copy);
        let synced = copied.and_then(|_| std::fs::File::open(&copy)?.sync_all());
        synced.map_err(|e| Failure::file(&copy, e))?;
    }
    let sync = std::fs::File::open(to).and_then(|dir| dir.sync_all());
    sync.map_err(|e| Failure::file(to, e))
}

/// Makes the configuration files of all daemons of this machine, and its credentials, agree with
/// the description. Files that already agree are not written. Daemons whose files change must not
/// be running.
pub fn settle(state: &StateDir, description: &Description) -> Done {
    for (name, _) in of_this_machine(description) {
        let journal = journal_config(state, description, &name);
        change(&state.config_file(&name), 0o644, |table| {
            match &journal {
                Some(journal) => {
                    let value = toml::Value::try_from(journal);
                    table.insert(
                        "journal".to_owned(),
                        value.map_err(|e| Failure::new(e.to_string()))?,
                    );
                }
                None => drop(table.remove("journal")),
            }
            Ok(())
        })?;
    }
    let addresses = addresses(state, description);
    let mut files: Vec<(PathBuf, u32)> = description
        .servers
        .iter()
        .map(|server| (state.config_file(&data_name(server.id)), 0o644))
        .filter(|(path, _)| path.exists())
        .collect();
    files.push((state.credential_file(), 0o600));
    let clients = std::fs::read_dir(state.clients_dir()).into_iter().flatten().flatten();
    let clients = clients.map(|entry| entry.path());
    files.extend(
        clients
            .filter(|path| path.extension().is_some_and(|e| e == "toml"))
            .map(|path| (path, 0o600)),
    );
    for (path, mode) in files {
        change(&path, mode, |table| {
            let list = addresses.iter().map(|address| address.clone().into()).collect();
            table.insert("metadata".to_owned(), toml::Value::Array(list));
            Ok(())
        })?;
    }
    Ok(())
}

/// Sets an entry in the configuration of a metadata server and keeps the others.
pub fn set(state: &StateDir, name: &str, key: &str, value: &str) -> Done {
    change(&state.config_file(name), 0o644, |table| {
        table.insert(key.to_owned(), value.into());
        Ok(())
    })
}

fn read(path: &Path) -> Done<toml::Table> {
    let text = std::fs::read_to_string(path).map_err(|e| Failure::file(path, e))?;
    text.parse().map_err(|e: toml::de::Error| Failure::new(e.to_string()).about(path.display()))
}

fn write(path: &Path, table: &toml::Table) -> Done {
    secret::replace(path, &table_text(table)?, 0o644)
}

fn table_text(table: &toml::Table) -> Done<String> {
    toml::to_string(table).map_err(|e| Failure::new(e.to_string()))
}

fn change(path: &Path, mode: u32, edit: impl FnOnce(&mut toml::Table) -> Done) -> Done {
    let before = read(path)?;
    let mut table = before.clone();
    edit(&mut table)?;
    match table == before {
        true => Ok(()),
        false => secret::replace(path, &table_text(&table)?, mode),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_metadata_server_has_the_name_that_it_always_had() {
        assert_eq!((meta_name(1), meta_name(2)), ("meta".to_owned(), "meta-2".to_owned()));
    }
}
