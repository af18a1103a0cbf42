//! Replaces a target of another machine, one that has joined, after its disk has failed. This is
//! the part of the metadata server's machine (`weir invite --replace`) and that of the joined
//! machine (`weir join`).
//!
//! The number of the new target is stored durably before anyone learns of it. The old target is
//! removed when the new one is there. Either command may be interrupted and run again.

use crate::args::Join;
use crate::cluster::adding::{begin, serve};
use crate::cluster::data_servers::target_config;
use crate::cluster::invitation::Invitation;
use crate::cluster::state::{Adding, Description, Invited, StateDir, StateLock};
use crate::cluster::{grow, keys, removal, secret, shrink};
use crate::failure::{Done, Failure};
use crate::files::remote::connect;
use crate::logging;
use crate::output::print;
use crate::settings::{self, Cluster};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};
use weir_client::Client;
use weir_connect::Credential;
use weir_types::TargetId;
use weir_wire::key::MasterKey;
use weir_wire::map::TargetState;

/// The longest to wait for the new target. Somebody may have to type a command on the other
/// machine.
const PATIENCE: Duration = Duration::from_secs(15 * 60);
/// The interval of checks whether the target serves.
const INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
/// After the reader of the invitation has ended, the new target must appear within this time. If it
/// does not, nobody is going to make it.
const AFTERMATH: Duration = Duration::from_secs(5);

/// The arguments of `weir invite --replace`.
pub struct Offer<'a> {
    /// The target whose disk has failed.
    pub target: u32,
    /// Do not ask for confirmation.
    pub yes: bool,
    /// A file for the invitation. Without one it is printed to standard output.
    pub output: Option<&'a Path>,
}

impl Offer<'_> {
    /// Prints the invitation, and removes the old target when the new one is there. All other
    /// messages go to standard error, since another command reads the invitation.
    pub fn run(
        &self,
        state: StateDir,
        mut description: Description,
        metadata: SocketAddr,
        lock: StateLock,
    ) -> Done {
        let old = TargetId(self.target);
        let client = connect(&Credential::read(&state.credential_file())?, "invite")?;
        let guest = self.guest(&client, &description)?;
        let Some(new) = guest.targets.first().map(|target| TargetId(*target)) else {
            return Err(Failure::new(format!("nothing replaces target {old}")));
        };
        removal::ask(&client, &[old], self.yes, say)?;
        let take_out = || {
            let cluster = Cluster::Here(state.clone());
            say(&removal::take_out(&cluster, &client.administrator()?, old, true)?)
        };
        if is_there(&client, new)? {
            drop(lock);
            return take_out();
        }
        if !description.invited.contains(&guest) {
            description.invited.push(guest.clone());
            state.set_description(&description)?;
        }
        let master = MasterKey(secret::read_key(&state.key_file("master"))?);
        Invitation::of(&guest, &description, metadata, &master).hand_out(self.output)?;
        drop(lock);
        let once_more = format!("`weir invite --replace {old}` once more removes target {old}");
        if self.output.is_some() {
            return say(&format!("when target {new} is there, {once_more}\n"));
        }
        let server = guest.server;
        say(&format!("waiting until data-{server} has target {new}, in place of target {old}\n"))?;
        match awaited(&client, new)? {
            true => take_out(),
            false => Err(Failure::new(format!("data-{server} does not have target {new} yet"))
                .hint(format!(
                    "`weir join` says why; the invitation stays good; when it is there, {once_more}"
                ))),
        }
    }

    /// Numbers for the machine. If it was invited for this target before, they stay the same.
    fn guest(&self, client: &Client, description: &Description) -> Done<Invited> {
        let old = self.target;
        let views = client.targets()?;
        let Some(view) = views.iter().find(|view| view.target == TargetId(old)) else {
            return Err(Failure::new(format!("there is no target {old}"))
                .hint("`weir targets` shows those that there are"));
        };
        let refused = |what: &str, hint: String| Err(Failure::new(what).hint(hint));
        if description.server_of(old).is_some() {
            let what = format!("target {old} is of this machine, which needs no invitation");
            return refused(&what, format!("`weir target replace {old}`"));
        }
        let server = view.server.0;
        let mut guests = description.invited.iter().filter(|guest| guest.server == server);
        let Some(first) = guests.clone().next() else {
            let what = format!("the machine of data-{server} has not joined by an invitation");
            let what_then = super::replacing::advice(Some(description), old, view.server, "");
            return refused(&what, what_then);
        };
        if !matches!(view.state, TargetState::Offline | TargetState::OutOfService) {
            let what = format!("target {old} is in use: its disk has not failed");
            return refused(
                &what,
                format!(
                    "`weir target drain {old} --wait` and `weir target remove {old}` lose nothing"
                ),
            );
        }
        if let Some(before) = guests.find(|guest| guest.replaces == Some(old)) {
            return Ok(before.clone());
        }
        let free = client.administrator()?.free_numbers()?.target.0;
        let targets = vec![description.free_target(free)];
        Ok(Invited { client: first.client, server, targets, replaces: Some(old) })
    }
}

/// Prints a message that is not for the command which reads the invitation.
fn say(text: &str) -> Done {
    logging::put(text.as_bytes().to_vec());
    Ok(())
}

/// Whether a target serves.
fn is_there(client: &Client, target: TargetId) -> Done<bool> {
    let map = client.cluster_map()?;
    let serves = |state: TargetState| state.is_online() || state == TargetState::Syncing;
    let mut known = map.targets();
    Ok(known.any(|(_, t)| t.target == target && serves(t.state)))
}

/// Waits until a target serves. `false` if it does not, and nobody is going to make it.
fn awaited(client: &Client, target: TargetId) -> Done<bool> {
    let begin = Instant::now();
    let mut alone: Option<Instant> = None;
    let output = std::io::stdout();
    loop {
        if is_there(client, target)? {
            return Ok(true);
        }
        if begin.elapsed() > PATIENCE || alone.is_some_and(|since| since.elapsed() > AFTERMATH) {
            return Ok(false);
        }
        // A closed pipe is reported at once and for ever, so from then on only the time is waited
        // for.
        let mut output = [PollFd::new(&output, PollFlags::empty())];
        let watched = if alone.is_none() { &mut output[..] } else { &mut [] };
        if poll(watched, Some(&INTERVAL)).is_ok_and(|events| events > 0) {
            alone = Some(Instant::now());
        }
    }
}

/// Runs `weir join` with an invitation to replace a target, on the machine that has joined.
pub fn join(join: &Join, state: &StateDir, invitation: &Invitation, old: u32) -> Done {
    let server = invitation.server;
    let no_such = || {
        Failure::new(format!(
            "the invitation is for the machine of data-{server} alone, whose target {old} it replaces"
        ))
        .hint("there is no such data server here: --name or --dir says where the cluster is kept")
    };
    if !state.exists() {
        return Err(no_such());
    }
    let lock = state.lock()?;
    let mut description = begin(state)?;
    let is_it = |s: &&crate::cluster::state::ServerDescription| s.id == server;
    let Some(described) = description.servers.iter().find(is_it) else { return Err(no_such()) };
    if !description.joined || description.id != invitation.id {
        return Err(no_such());
    }
    if join.listen.is_some()
        || join.port.is_some()
        || join.domain.is_some()
        || join.metrics.is_some()
    {
        return Err(Failure::new(format!("data-{server} stays as it is, except for its target"))
            .hint("leave out --listen, --port, --domain and --metrics"));
    }
    let (targets, dirs) = (invitation.targets()?, &join.data);
    let ([(new, key)], [dir]) = (&targets[..], &dirs[..]) else {
        return Err(Failure::new("the invitation is for one target: one --data DIR"));
    };
    let client = connect(&invitation.credential()?, "join")?;
    if !described.targets.contains(new) {
        keys::write_key(&target_config(state, *new).key_file, key)?;
        let dir = Some(settings::absolute(dir)?);
        let (address, target, replaces) = (None, *new, Some(old));
        grow::add(state, &mut description, Adding { server, address, target, dir, replaces })?;
    }
    serve(state, &client, server, &[*new])?;
    drop(lock);
    match shrink::forget_target(state, old)? {
        Some(dir) => print(&format!(
            "target {old} is not served any more; what is left in {} can be deleted\n",
            dir.display()
        )),
        None => Ok(()),
    }
}
