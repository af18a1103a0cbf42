//! `weir invite`: prints an invitation, one line with everything that another machine needs to join
//! the cluster. The line is a secret. It goes from the output of one command to the input of
//! another, never into arguments, which every user of a machine can see.

use crate::args::Invite;
use crate::cluster::replaced::Offer;
use crate::cluster::secret;
use crate::cluster::state::{Description, Invited, MetaDescription, StateDir};
use crate::failure::{Done, Failure};
use crate::files::remote::connect;
use crate::logging;
use crate::output::print;
use crate::settings;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, IsTerminal, Read};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use weir_connect::Credential;
use weir_types::checksum::crc32c;
use weir_types::restrictions::plain_client;
use weir_types::{ClientId, KeyGeneration, ServerId, TargetId};
use weir_wire::key::MasterKey;
use weir_wire::{Key, Level};

/// An invitation.
const LINE: Line = Line { head: "weir-invitation-", version: 1, by: "weir invite" };
/// The longest invitation, in bytes: that with the most targets.
const MAX_BYTES: usize = 256 << 10;

/// The contents of an invitation.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Invitation {
    /// The name of the cluster, for people.
    pub cluster: String,
    /// The identity of the cluster: 32 hexadecimal digits.
    pub id: String,
    /// The `address:port` of the metadata server.
    pub metadata: String,
    /// Those of further metadata servers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<String>,
    /// Number and key of a client that is no administrator.
    pub client: u64,
    client_key: String,
    /// The number of a data server. 0: the machine gets no data server, and there is no server key.
    pub server: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    server_key: Option<String>,
    /// Number and key of each target of the data server.
    targets: Vec<(u32, String)>,
    /// The target that the only new target replaces. The server exists already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<u32>,
}

impl Invitation {
    /// Makes an invitation with the keys for the numbers that were reserved for the machine.
    pub fn of(
        guest: &Invited,
        description: &Description,
        metadata: SocketAddr,
        master: &MasterKey,
    ) -> Self {
        let Invited { client, server, ref targets, replaces } = *guest;
        let generation = KeyGeneration(1);
        let target =
            |number: &u32| (*number, master.target(TargetId(*number), generation).to_hex());
        Self {
            cluster: description.name.clone(),
            id: description.id.clone(),
            metadata: metadata.to_string(),
            others: description.metas.iter().map(|meta| at(meta, metadata.ip())).collect(),
            client,
            client_key: master.client(ClientId(client)).to_hex(),
            server,
            // A machine that only mounts gets no server key.
            server_key: (server > 0).then(|| master.server(ServerId(server), generation).to_hex()),
            targets: targets.iter().map(target).collect(),
            replaces,
        }
    }

    /// The credential of the client.
    pub fn credential(&self) -> Done<Credential> {
        Ok(Credential {
            cluster: self.cluster.clone(),
            client: ClientId(self.client),
            key: key(&self.client_key)?,
            metadata: self.metadata_servers(),
            note: "by weir join".to_owned(),
            protection: Level::Args,
        })
    }

    /// The addresses of all metadata servers.
    pub fn metadata_servers(&self) -> Vec<String> {
        [&self.metadata].into_iter().chain(&self.others).cloned().collect()
    }

    /// The key of the data server.
    pub fn server_key(&self) -> Done<Key> {
        key(self.server_key.as_deref().unwrap_or_default())
    }

    /// Number and key of each target.
    pub fn targets(&self) -> Done<Vec<(u32, Key)>> {
        self.targets.iter().map(|(target, text)| Ok((*target, key(text)?))).collect()
    }

    /// Writes the invitation to a file or to standard output.
    pub fn hand_out(&self, output: Option<&Path>) -> Done {
        LINE.hand_out(self, output)
    }

    /// Parses an invitation. Errors do not show the line, which is secret.
    pub fn from_line(line: &str) -> Done<Self> {
        LINE.parse(line)
    }
}

/// A kind of line that is a secret and goes from one machine to another.
pub struct Line {
    /// The prefix, before the version.
    pub head: &'static str,
    /// A line with another version number is refused.
    pub version: u32,
    /// The command that prints it.
    pub by: &'static str,
}

impl Line {
    /// Writes a line to a file or to standard output.
    pub fn hand_out(&self, content: &impl Serialize, output: Option<&Path>) -> Done {
        let line = self.of(content)?;
        match output {
            Some(path) => Ok(weir_connect::secret::write_new(path, &line)?),
            None => print(&line),
        }
    }

    fn of(&self, content: &impl Serialize) -> Done<String> {
        let bytes = serde_json::to_vec(content).map_err(|e| Failure::new(e.to_string()))?;
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(format!("{}{}:{digits}:{:08x}\n", self.head, self.version, crc32c(&bytes)))
    }

    /// Parses a line. Errors do not show it.
    pub fn parse<T: DeserializeOwned>(&self, line: &str) -> Done<T> {
        let bad = |what: &str| {
            Failure::new(format!("not an invitation: {what}"))
                .hint(format!("it is the whole line that `{}` prints", self.by))
        };
        let line = line.trim();
        let Some(rest) = line.strip_prefix(&format!("{}{}:", self.head, self.version)) else {
            return Err(bad(match line.starts_with(self.head) {
                true => "it is of another version of Weir: install the same on both machines",
                false => "it begins otherwise",
            }));
        };
        let damaged = || bad("it is cut off or damaged");
        let (digits, sum) = rest.split_once(':').ok_or_else(damaged)?;
        let pairs = digits.as_bytes().chunks(2);
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        let bytes: Vec<u8> = pairs.map(byte).collect::<Option<_>>().ok_or_else(damaged)?;
        if sum.len() != 8 || u32::from_str_radix(sum, 16) != Ok(crc32c(&bytes)) {
            return Err(damaged());
        }
        serde_json::from_slice(&bytes).map_err(|_| bad("its fields are wrong"))
    }
}

/// Reads a line that this command has printed, from a file or from standard input.
pub fn read_line(path: Option<&Path>, by: &str) -> Done<String> {
    if let Some(path) = path {
        return Ok(weir_connect::secret::read(path)?);
    }
    let input = std::io::stdin();
    let mut line = String::new();
    let read = match input.is_terminal() {
        true => {
            logging::say(&format!("weir: paste the line that `{by}` has printed:"));
            input.read_line(&mut line)
        }
        // The writer may keep the pipe open and wait for this machine, so only one line is read.
        false => BufReader::new(input.take(MAX_BYTES as u64)).read_line(&mut line),
    };
    read.map_err(|e| Failure::file(Path::new("standard input"), e))?;
    Ok(line)
}

fn key(text: &str) -> Done<Key> {
    Key::from_hex(text).ok_or_else(|| Failure::new("the invitation has an invalid key"))
}

/// Runs `weir invite`.
pub fn invite(invite: &Invite) -> Done {
    let state = settings::state_dir(&invite.cluster)?;
    let lock = state.lock()?;
    let mut description = state.description()?;
    if description.joined {
        return Err(Failure::new("this machine has joined the cluster itself, and cannot invite")
            .hint("`weir invite` is for the machine of the metadata server"));
    }
    let metadata = reached_at(&description.metadata, invite.address)?;
    if let Some(target) = invite.replace {
        let offer = Offer { target, yes: invite.yes, output: invite.output.as_deref() };
        return offer.run(state, description, metadata, lock);
    }
    let invitation = make(&state, &mut description, metadata, invite.targets)?;
    if metadata.ip().is_loopback() {
        logging::say(&format!(
            "weir: this invitation is only for a second directory of this machine: no other \
             machine reaches {metadata}"
        ));
    }
    invitation.hand_out(invite.output.as_deref())
}

/// The address at which other machines reach the metadata server: the given one, or the one at
/// which it listens.
fn reached_at(metadata: &str, given: Option<IpAddr>) -> Done<SocketAddr> {
    let listens: SocketAddr = metadata.parse().map_err(|_| {
        Failure::new(format!("the metadata server's address is not that of a machine: {metadata}"))
    })?;
    let at = SocketAddr::new(given.unwrap_or(listens.ip()), listens.port());
    if at.ip().is_unspecified() {
        return Err(Failure::new(format!("no other machine can connect to {at}")).hint(
            "give the address of this machine at which others reach it: `weir invite --address \
             ADDRESS` (`ip address` shows which there are)",
        ));
    }
    if given.is_none() && at.ip().is_loopback() {
        return Err(Failure::new(format!(
            "no other machine reaches this cluster: its metadata server listens on {at}"
        ))
        .hint(format!(
            "make a cluster with `weir up --listen ADDRESS`; `weir up --listen` says how to move \
             an existing one. If connections of others are forwarded there, or to try a second \
             directory of this machine: `weir invite --address {}`",
            at.ip()
        )));
    }
    Ok(at)
}

/// The address of a metadata server, as others reach it: those of this machine all by one address.
fn at(meta: &MetaDescription, ip: IpAddr) -> String {
    match meta.address.parse::<SocketAddr>() {
        Ok(at) if meta.here != Some(false) => SocketAddr::new(ip, at.port()).to_string(),
        _ => meta.address.clone(),
    }
}

/// Whether other machines may reach a metadata server that listens at this address.
pub fn is_for_others(metadata: &str) -> bool {
    reached_at(metadata, None).is_ok()
}

/// Reserves unused numbers durably and makes keys for them.
fn make(
    state: &StateDir,
    description: &mut Description,
    metadata: SocketAddr,
    targets: u32,
) -> Done<Invitation> {
    let master = MasterKey(secret::read_key(&state.key_file("master"))?);
    let client = plain_client(u64::from_le_bytes(secret::random()?));
    let (mut server, mut numbers) = (0, Vec::new());
    if targets > 0 {
        let asked = connect(&Credential::read(&state.credential_file())?, "invite")?;
        let free = asked.administrator()?.free_numbers()?;
        server = description.free_server(free.server.0);
        let first = description.free_target(free.target.0);
        numbers.extend(first..first.saturating_add(targets));
    }
    let guest = Invited { client: client.0, server, targets: numbers, replaces: None };
    description.invited.push(guest.clone());
    state.set_description(description)?;
    Ok(Invitation::of(&guest, description, metadata, &master))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_is_none_of_a_machine_invites_nobody() {
        for everywhere in ["0.0.0.0:7700", "[::]:7700"] {
            let refused = reached_at(everywhere, None).unwrap_err();
            assert!(refused.to_string().contains(everywhere), "{refused}");
            assert!(!is_for_others(everywhere));
            let given = reached_at(everywhere, Some([10, 0, 0, 1].into())).unwrap();
            assert_eq!(given.to_string(), "10.0.0.1:7700");
        }
        assert!(reached_at("10.0.0.1:7700", Some([0; 4].into())).is_err());
        let given = reached_at("127.0.0.1:7700", Some([127, 0, 0, 1].into())).unwrap();
        assert_eq!(given.to_string(), "127.0.0.1:7700");
        assert!(is_for_others("10.0.0.1:7700") && !is_for_others("127.0.0.1:7700"));
    }

    #[test]
    fn an_invitation_survives_its_line_and_a_damaged_one_is_refused_without_being_shown() {
        let secret = "5e".repeat(32);
        let invitation = Invitation {
            cluster: "one".into(),
            id: "00".repeat(16),
            metadata: "10.0.0.1:7700".into(),
            others: vec!["10.0.0.1:7702".into()],
            client: 77,
            client_key: secret.clone(),
            server: 5,
            server_key: Some(secret.clone()),
            targets: vec![(9, secret.clone())],
            replaces: None,
        };
        let line = LINE.of(&invitation).unwrap();
        assert!(Invitation::from_line(&line).unwrap() == invitation);
        assert_eq!(invitation.targets().unwrap()[0].1.to_hex(), secret);
        let shown: String = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
        for bad in [
            line.replace("-1:", "-2:"),
            line.trim_end().trim_end_matches(|c| c != ':').to_owned(),
            line[..line.len() / 2].to_owned(),
            line.replacen("0", "1", 1),
            "cluster = 1".to_owned(),
            String::new(),
        ] {
            let failure = Invitation::from_line(&bad).err().unwrap().to_string();
            assert!(failure.contains("not an invitation"), "{failure}");
            assert!(!failure.contains(&secret) && !failure.contains(&shown), "{failure}");
        }
    }
}
