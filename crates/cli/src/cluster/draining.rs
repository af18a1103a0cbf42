//! `weir target drain` and `undrain`, and `weir server drain` and `undrain` for all targets of a
//! server.

use crate::args::{ServerChoice, ServerDrain, TargetChoice, TargetDrain};
use crate::cluster::daemon::META;
use crate::cluster::moving::Moving;
use crate::cluster::servers::{self, listed};
use crate::cluster::trouble::recovers;
use crate::failure::{Done, Failure};
use crate::files::remote::connect;
use crate::output::print;
use crate::progress::Progress;
use crate::settings;
use std::time::{Duration, Instant};
use weir_client::Client;
use weir_types::TargetId;
use weir_wire::map::TargetState;
use weir_wire::targets::TargetView;

/// The interval of checks for progress.
const INTERVAL: Duration = Duration::from_secs(1);
/// If nothing is moved for this time the drain counts as stuck. A move that failed is tried again
/// after half of this time.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs `weir target drain`.
pub fn drain_target(drain: &TargetDrain) -> Done {
    let client = client(&drain.choice, "target drain")?;
    let targets = [TargetId(drain.choice.target)];
    set(&client, &targets, true)?;
    if drain.wait { wait(&client, &targets) } else { Ok(()) }
}

/// Runs `weir target undrain`.
pub fn undrain_target(choice: &TargetChoice) -> Done {
    set(&client(choice, "target undrain")?, &[TargetId(choice.target)], false)
}

fn client(choice: &TargetChoice, what: &str) -> Done<Client> {
    connect(&settings::cluster(&choice.client)?.credential()?, what)
}

/// Runs `weir server drain`.
pub fn drain_server(drain: &ServerDrain) -> Done {
    let (client, targets) = of_server(&drain.choice, "server drain")?;
    let views = client.targets()?;
    if views.iter().all(|view| view.draining || targets.contains(&view.target)) {
        let what = format!(
            "nothing could take what data server {} has: no other one has targets that are not \
             drained",
            drain.choice.server
        );
        return Err(Failure::new(what).hint("`weir server add` adds one"));
    }
    set(&client, &targets, true)?;
    if drain.wait { wait(&client, &targets) } else { Ok(()) }
}

/// Runs `weir server undrain`.
pub fn undrain_server(choice: &ServerChoice) -> Done {
    let (client, targets) = of_server(choice, "server undrain")?;
    set(&client, &targets, false)
}

fn of_server(choice: &ServerChoice, what: &str) -> Done<(Client, Vec<TargetId>)> {
    let client = connect(&settings::cluster(&choice.client)?.credential()?, what)?;
    let targets = servers::one(&client, choice.server)?.numbers();
    if targets.is_empty() {
        return Err(Failure::new(format!("data server {} has no targets", choice.server)));
    }
    Ok((client, targets))
}

fn set(client: &Client, targets: &[TargetId], draining: bool) -> Done {
    let admin = client.administrator()?;
    Ok(targets.iter().try_for_each(|target| admin.set_target(*target, draining))?)
}

/// The numbers that change while copies are moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    files: u64,
    copies_done: u64,
    bytes_done: u64,
}

/// Waits until no file has a copy on the targets, and shows the progress.
fn wait(client: &Client, targets: &[TargetId]) -> Done {
    let admin = client.administrator()?;
    let (mut shown, mut progress) = (String::new(), None);
    let mut last: Option<(Seen, Instant)> = None;
    loop {
        let moving = Moving::of(&[(META.to_owned(), client.metadata_status()?)]);
        let moving = moving.unwrap_or_default();
        let files = admin.count_copies(targets)?;
        let progress = progress.get_or_insert_with(|| Progress::start(false, files));
        if files == 0 {
            progress.finish();
            return print(&format!("nothing is left on target {}\n", listed(targets)));
        }
        let views = client.targets()?;
        still_drained(&views, targets)?;
        progress.left(files);
        progress.say(|| format!("{files} files left. {}", moving.line()));
        let text = format!("{files} files left{}\n", moving.text().trim_end());
        if text != shown && !progress.is_watched() {
            print(&text)?;
            shown = text;
        }
        let Moving { copies_done, bytes_done, .. } = moving;
        let seen = Seen { files, copies_done, bytes_done };
        match last {
            Some((before, since)) if before == seen => {
                let away = away(&views);
                // Moves in progress end only when all targets that they need are online.
                if since.elapsed() > PATIENCE && (!away.is_empty() || !moving.is_at_work()) {
                    return Err(stuck(files, targets, &away));
                }
            }
            _ => last = Some((seen, Instant::now())),
        }
        // There is no notification of the end.
        std::thread::sleep(INTERVAL);
    }
}

/// Fails if a target is not being drained any more.
fn still_drained(views: &[TargetView], targets: &[TargetId]) -> Done {
    let drained = |target: &&TargetId| views.iter().any(|v| v.target == **target && v.draining);
    match targets.iter().find(|target| !drained(target)) {
        None => Ok(()),
        Some(target) => Err(Failure::new(format!("target {target} is not drained any more"))),
    }
}

/// Targets that serve nothing until somebody helps.
fn away(views: &[TargetView]) -> Vec<TargetId> {
    let is_away = |view: &&TargetView| {
        let serves_nothing = view.state == TargetState::Offline || !view.trouble.is_empty();
        serves_nothing && !recovers(view)
    };
    views.iter().filter(is_away).map(|view| view.target).collect()
}

fn stuck(files: u64, targets: &[TargetId], away: &[TargetId]) -> Failure {
    let seconds = PATIENCE.as_secs();
    let why = match away {
        [] => "there is no room or no target for them, or no copy online to move".to_owned(),
        away => format!("target {} serves nothing", listed(away)),
    };
    let what = format!(
        "{files} files have copies on target {}, and for {seconds} s nothing was moved: {why}",
        listed(targets)
    );
    Failure::new(what).hint(
        "`weir status` shows which are away or full, and what to do: the drain goes on afterwards",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::targets::tests::view;

    #[test]
    fn targets_that_serve_nothing_are_named_where_a_drain_is_stuck() {
        let of = |target, state, trouble: &str| TargetView {
            target: TargetId(target),
            trouble: trouble.to_owned(),
            ..view(state)
        };
        let views = [
            of(1, TargetState::Online, ""),
            of(2, TargetState::Online, "out of service: No space left on device"),
            of(3, TargetState::Syncing, ""),
            of(4, TargetState::Offline, ""),
        ];
        let away = away(&views);
        assert_eq!(away, [TargetId(2), TargetId(4)]);
        let said = |away| stuck(7, &[TargetId(1)], away).to_string();
        assert!(said(&away).contains("target 2,4 serves nothing"), "{}", said(&away));
        assert!(said(&[]).contains("no room or no target"));
    }
}
