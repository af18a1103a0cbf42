//! `weir key new`, `list` and `revoke`: the keys of clients and their restrictions. The metadata
//! server learns of a restriction before the credential is written, so that no credential exists
//! without its restrictions.

use crate::args::{KeyList, KeyNew, KeyRevoke, KeyRotate, SquashChoice};
use crate::cluster::secret;
use crate::cluster::state::StateDir;
use crate::failure::{Done, Failure, Failures};
use crate::files::remote::connect;
use crate::files::upward::path_of;
use crate::output::{print, print_json};
use crate::settings;
use crate::text::Table;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use weir_client::{Administrator, Client, Context};
use weir_connect::Credential;
use weir_host::clock;
use weir_types::restrictions::{NOBODY, plain_client, recorded_client};
use weir_types::{ClientId, ClientStanding, FileId, FileKind, Restrictions, Squash, TargetId};
use weir_wire::key::MasterKey;
use weir_wire::meta::ClientInfo;

/// Data servers report twice a second, and have confirmed a revocation with the second report.
const CONFIRMED: Duration = Duration::from_secs(5);
/// Interval at which the metadata server is asked whether they have.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// Its counter of data servers that have not.
const LACKING: &str = "revocations.servers_lacking";

/// A session of the administrator.
/// Time for data servers to get new own keys.
const OWN_KEYS_WITHIN: Duration = Duration::from_secs(10);

struct Server {
    client: Client,
    admin: Administrator,
}

impl Server {
    fn of(state: &StateDir) -> Done<Self> {
        let client = connect(&Credential::read(&state.credential_file())?, "key")?;
        let admin = client.administrator()?;
        Ok(Self { client, admin })
    }

    fn subtree(&self, path: &str) -> Done<Option<FileId>> {
        let path = path.strip_prefix("weir:").unwrap_or(path);
        let about = |e| Failure::from(e).about(format!("subtree weir:{path}"));
        let found = self.client.resolve(&Context::root(), path.as_bytes(), true);
        let attr = found.map_err(about)?;
        if attr.kind != FileKind::Directory {
            return Err(Failure::new("not a directory").about(format!("subtree weir:{path}")));
        }
        if attr.file == FileId::ROOT {
            return Err(Failure::new("the root directory is no subtree")
                .hint("leave --subtree out: the key is for the whole file system then"));
        }
        Ok(Some(attr.file))
    }

    fn path(&self, dir: FileId) -> Option<String> {
        path_of(&self.client, dir)
    }

    /// Waits until all data servers know of a revoked key, a few seconds at most. Returns the number
    /// of those that do not.
    fn lacking(&self) -> Done<u64> {
        let until = Instant::now() + CONFIRMED;
        loop {
            let status = self.client.metadata_status()?;
            let counter = status.counters.iter().find(|(name, _)| name == LACKING);
            let Some((_, lacking)) = counter else {
                return Err(Failure::new(format!(
                    "the metadata server does not report `{LACKING}`"
                )));
            };
            let lacking = *lacking;
            if lacking == 0 || Instant::now() >= until {
                return Ok(lacking);
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// A warning if users whom a key maps to the anonymous user cannot create files in the key's
    /// root directory.
    fn cannot_write(&self, info: &ClientInfo) -> Option<String> {
        let held = &info.restrictions;
        if held.squash == Squash::None || held.read_only {
            return None;
        }
        let root = held.subtree.unwrap_or(FileId::ROOT);
        let attr = self.client.getattr(&Context::root(), root).ok()?;
        let (uid, gid) = (held.anon_uid, held.anon_gid);
        let bits = match () {
            () if attr.uid == uid => attr.mode >> 6,
            () if attr.gid == gid => attr.mode >> 3,
            () => attr.mode,
        };
        let (write, pass) = (0o2, 0o1);
        if uid == 0 || bits & (write | pass) == write | pass {
            return None;
        }
        let who = match held.squash {
            Squash::Root => "the superuser",
            _ => "everyone",
        };
        let path = self.path(root).unwrap_or_else(|| "/".to_owned());
        Some(format!(
            "\n  {who} is {uid}:{gid} with it, who may not write in {path}: that belongs to {}:{}, \
             mode {:o}. If that is not meant: on a mount with another key `chown {uid}:{gid}` it, or \
             name its owner with --anon-uid and --anon-gid",
            attr.uid,
            attr.gid,
            attr.mode & 0o7777
        ))
    }
}

/// Runs `weir key new`.
pub fn make(new: &KeyNew) -> Done {
    let state = settings::state_dir(&new.cluster)?;
    let description = state.description()?;
    let master = MasterKey(secret::read_key(&state.key_file("master"))?);
    if let Some(name) = &new.key_name {
        check_name(name)?;
    }
    // A random number, not the next free one: so two administrators never make the same number, and
    // a number that was given out is never given out again.
    let random = u64::from_le_bytes(secret::random()?);
    let restricts = new.read_only || new.subtree.is_some() || new.squash.is_some();
    // A plain key works at once without the server, so the server need not be told of it.
    let told = restricts || new.key_name.is_some();
    let client = if told { recorded_client(random) } else { plain_client(random) };
    let file = new.key_name.clone().unwrap_or_else(|| client.to_string());
    let path = match &new.output {
        Some(path) => path.clone(),
        None => state.clients_dir().join(format!("{file}.toml")),
    };
    if path.symlink_metadata().is_ok() {
        return Err(Failure::new("there is such a file already")
            .about(path.display())
            .hint("name another one with --output"));
    }
    let first = Credential::read(&state.credential_file())?;
    let credential = Credential {
        cluster: description.name,
        client,
        key: master.client(client),
        metadata: first.metadata,
        note: new.note.clone(),
        protection: first.protection,
    };
    let restricted = match told {
        true => Some(tell(&state, client, new)?),
        false => None,
    };
    if let Err(failure) = credential.write_new(&path) {
        // The key was not given out, so its name is free again.
        if let Some((server, info)) = restricted {
            let info =
                ClientInfo { name: String::new(), standing: ClientStanding::Revoked, ..info };
            server.admin.set_client(&info)?;
        }
        return Err(failure.into());
    }
    let may = match &restricted {
        Some((server, info)) => {
            let cannot = server.cannot_write(info).unwrap_or_default();
            format!("\n  it may: {}{cannot}", may(info, &|dir| server.path(dir)))
        }
        None => String::new(),
    };
    print(&format!(
        "{}: credential of client {client}; keep it secret (mode 0600){may}\n  weir ls --credential {}\n",
        path.display(),
        path.display()
    ))
}

fn tell(state: &StateDir, client: ClientId, new: &KeyNew) -> Done<(Server, ClientInfo)> {
    let server = Server::of(state)?;
    let subtree = match &new.subtree {
        Some(path) => server.subtree(path)?,
        None => None,
    };
    let restrictions = Restrictions {
        read_only: new.read_only,
        squash: match new.squash {
            None => Squash::None,
            Some(SquashChoice::Root) => Squash::Root,
            Some(SquashChoice::All) => Squash::All,
        },
        anon_uid: new.anon_uid.unwrap_or(NOBODY),
        anon_gid: new.anon_gid.unwrap_or(NOBODY),
        subtree,
    };
    let name = new.key_name.clone().unwrap_or_default();
    let info = ClientInfo { client, name, standing: ClientStanding::Ordinary, restrictions };
    server.admin.set_client(&info)?;
    Ok((server, info))
}

/// Checks a name for a key. It is also a file name, and must not be a number.
fn check_name(name: &str) -> Done {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let number = name.chars().all(|c| c.is_ascii_digit());
    if name.starts_with('.') || name.len() > 64 || number || !name.chars().all(allowed) {
        return Err(Failure::new(format!("'{name}' cannot be the name of a key"))
            .hint("use letters, digits, '-', '_' and '.'"));
    }
    Ok(())
}

/// Runs `weir key revoke`.
pub fn revoke(revoke: &KeyRevoke) -> Done {
    let state = settings::state_dir(&revoke.cluster)?;
    state.require()?;
    let server = Server::of(&state)?;
    let known = server.admin.clients()?;
    let number = revoke.key.parse().ok().map(ClientId);
    let found = known.into_iter().find(|i| i.name == revoke.key || Some(i.client) == number);
    let info = match (found, number) {
        (Some(info), _) => info,
        // A key of which the server was never told.
        (None, Some(client)) => ClientInfo {
            client,
            name: String::new(),
            standing: ClientStanding::Ordinary,
            restrictions: Restrictions::NONE,
        },
        (None, None) => {
            return Err(Failure::new(format!("there is no key '{}'", revoke.key))
                .hint("`weir key list` shows names and numbers"));
        }
    };
    let info = ClientInfo { standing: ClientStanding::Revoked, ..info };
    server.admin.set_client(&info)?;
    let client = info.client;
    print(&match server.lacking()? {
        0 => format!("client {client} is refused from now on, by every data server too\n"),
        lacking => format!(
            "client {client} is refused from now on, but {lacking} data servers have not \
             confirmed that yet (`weir status`). Those that are down refuse it when they are back; \
             one that runs and cannot reach the metadata server lets it read and write what it \
             had open, until its capabilities run out (`capability_ms`, an hour)\n"
        ),
    })
}

/// Runs `weir key rotate`.
pub fn rotate(rotate: &KeyRotate) -> Done {
    let state = settings::state_dir(&rotate.cluster)?;
    state.require()?;
    let target = rotate.target.map(TargetId).filter(|_| !rotate.all);
    let server = Server::of(&state)?;
    let made = server.admin.rotate_keys(target, rotate.now, rotate.own)?;
    if rotate.own {
        return tell_own(&server);
    }
    let whose = match target {
        Some(target) => format!("target {target}"),
        None => "all targets".to_owned(),
    };
    let until = match rotate.now {
        true => "are invalid now: clients fetch new capabilities".to_owned(),
        false => {
            let left_ms =
                made.old_until_unix_ms.saturating_sub(clock::unix_now().as_millis() as u64);
            let minutes = left_ms.div_ceil(60_000);
            format!(
                "are valid for {minutes} more minutes, until the capabilities that they signed \
                have expired"
            )
        }
    };
    print(&format!(
        "working keys of generation {} sign capabilities from now on\n  the earlier ones of {whose} \
         {until}\n",
        made.generation
    ))
}

/// Waits until the servers of targets have their new keys, and tells the result.
fn tell_own(server: &Server) -> Done {
    let begun = Instant::now();
    let waiting = || {
        let counters = server.client.metadata_status()?.counters;
        let found = counters.into_iter().find(|(name, _)| name == "keys.own_waiting");
        Ok::<u64, Failure>(found.map_or(0, |(_, number)| number))
    };
    let mut left = waiting()?;
    while left > 0 && begun.elapsed() < OWN_KEYS_WITHIN {
        std::thread::sleep(Duration::from_millis(100));
        left = waiting()?;
    }
    print(&match left {
        0 => "new own keys of targets sign capabilities from now on, with new working keys\n"
            .to_owned(),
        left => format!(
            "{left} targets wait for their new own keys: their data servers do not answer, or two \
             generations of their keys count already\n  until then their present keys sign; the \
             rest goes by itself\n"
        ),
    })
}

/// Runs `weir key list`.
pub fn show(list: &KeyList) -> Done {
    let state = settings::state_dir(&list.cluster)?;
    let description = state.description()?;
    let mut failures = Failures::default();
    let mut files: BTreeMap<ClientId, (PathBuf, String)> = BTreeMap::new();
    let dir = state.clients_dir();
    let further = std::fs::read_dir(&dir).map_err(|e| Failure::file(&dir, e))?;
    let mut paths: Vec<PathBuf> = further.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in [state.credential_file()].into_iter().chain(paths) {
        if let Some(credential) = failures.keep(Credential::read(&path).map_err(Into::into)) {
            files.insert(credential.client, (path, credential.note));
        }
    }
    // Without an answer of the server, the files are still listed.
    let asked = Server::of(&state).and_then(|server| {
        let known = server.admin.clients()?;
        Ok((server, known))
    });
    let asked = failures.keep(asked.map_err(|e| e.about("what keys may do is not shown")));
    // For invited machines, the credential is on that machine.
    let guests: BTreeMap<ClientId, String> =
        description.invited.iter().map(|guest| (ClientId(guest.client), guest.note())).collect();
    let mut all: BTreeMap<ClientId, Option<ClientInfo>> =
        files.keys().chain(guests.keys()).map(|client| (*client, None)).collect();
    let server = asked.map(|(server, known)| {
        all.extend(known.into_iter().map(|info| (info.client, Some(info))));
        server
    });
    let path_of = |dir: FileId| server.as_ref().and_then(|server| server.path(dir));
    let mut table = Table::new(&["CLIENT", "NAME", "MAY", "NOTE", "FILE"]);
    let mut rows: Vec<Value> = Vec::new();
    for (client, info) in &all {
        let plain = || ClientInfo {
            client: *client,
            name: String::new(),
            standing: ClientStanding::Ordinary,
            restrictions: Restrictions::NONE,
        };
        let info = info.clone().or_else(|| server.as_ref().map(|_| plain()));
        let (file, note) = match files.get(client) {
            Some((path, note)) => (Some(path.display().to_string()), note.clone()),
            None => (None, guests.get(client).cloned().unwrap_or_default()),
        };
        if list.json {
            rows.push(to_json(*client, info.as_ref(), file, &note, &path_of));
            continue;
        }
        table.row(vec![
            client.to_string(),
            info.as_ref().map(|info| info.name.clone()).unwrap_or_default(),
            info.as_ref().map_or_else(|| "?".into(), |info| may(info, &path_of)),
            note,
            file.unwrap_or_default(),
        ]);
    }
    match list.json {
        true => print_json(&rows)?,
        false => print(&table.render())?,
    }
    failures.end()
}

fn to_json(
    client: ClientId,
    info: Option<&ClientInfo>,
    file: Option<String>,
    note: &str,
    path_of: &dyn Fn(FileId) -> Option<String>,
) -> Value {
    let mut row = json!({ "client": client.0, "note": note, "file": file });
    if let Some(info) = info {
        let held = &info.restrictions;
        let subtree = held.subtree.map(|dir| json!({ "directory": dir.0, "path": path_of(dir) }));
        row["name"] = json!(info.name);
        row["standing"] = json!(standing(info.standing));
        row["read_only"] = json!(held.read_only);
        row["squash"] = json!(squash(held.squash));
        row["anon_uid"] = json!(held.anon_uid);
        row["anon_gid"] = json!(held.anon_gid);
        row["subtree"] = json!(subtree);
    }
    row
}

fn standing(standing: ClientStanding) -> &'static str {
    match standing {
        ClientStanding::Ordinary => "ordinary",
        ClientStanding::Administrator => "administrator",
        ClientStanding::Revoked => "revoked",
    }
}

fn squash(squash: Squash) -> &'static str {
    match squash {
        Squash::None => "none",
        Squash::Root => "root",
        Squash::All => "all",
    }
}

/// Describes in a few words what a key permits.
fn may(info: &ClientInfo, path_of: &dyn Fn(FileId) -> Option<String>) -> String {
    let held = &info.restrictions;
    match info.standing {
        ClientStanding::Revoked => return "nothing: revoked".into(),
        ClientStanding::Administrator => return "administer".into(),
        ClientStanding::Ordinary => {}
    }
    let mut words = vec![if held.read_only { "read" } else { "read, write" }.to_owned()];
    if held.squash != Squash::None {
        let (who, uid, gid) = (squash(held.squash), held.anon_uid, held.anon_gid);
        words.push(format!("{who} as {uid}:{gid}"));
    }
    if let Some(dir) = held.subtree {
        words.push(match path_of(dir) {
            Some(path) => format!("below {path}"),
            None => format!("below directory {dir}, which is gone"),
        });
    }
    words.join(", ")
}
