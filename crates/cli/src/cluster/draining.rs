//! `weir target drain` and `undrain`, and `weir server drain` and `undrain` for all targets of a
//! server.

use crate::args::{ServerChoice, ServerDrain, TargetChoice, TargetDrain};
use crate::cluster::daemon::META;
use crate::cluster::moving::Moving;
use crate::cluster::servers::{self, listed};
use crate::failure::{Done, Failure};
use crate::files::remote::connect;
use crate::output::print;
use crate::progress::Progress;
use crate::settings;
use std::time::{Duration, Instant};
use weir_client::Client;
use weir_types::TargetId;

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
        still_drained(client, targets)?;
        progress.left(files);
        progress.say(|| format!("{files} files left. {}", moving.line()));
        let text = format!("{files} files left{}\n", moving.text().trim_end());
        if text != shown && !progress.is_watched() {
            print(&text)?;
            shown = text;
        }
        let seen = Seen { files, copies_done: moving.copies_done };
        match last {
            Some((before, since)) if before == seen && !moving.is_at_work() => {
                if since.elapsed() > PATIENCE {
                    return Err(stuck(files, targets));
                }
            }
            _ => last = Some((seen, Instant::now())),
        }
        // Nothing tells when it ends.
        std::thread::sleep(INTERVAL);
    }
}

/// Fails if a target is not being drained any more.
fn still_drained(client: &Client, targets: &[TargetId]) -> Done {
    let views = client.targets()?;
    let drained = |target: &&TargetId| views.iter().any(|v| v.target == **target && v.draining);
    match targets.iter().find(|target| !drained(target)) {
        None => Ok(()),
        Some(target) => Err(Failure::new(format!("target {target} is not drained any more"))),
    }
}

fn stuck(files: u64, targets: &[TargetId]) -> Failure {
    let seconds = PATIENCE.as_secs();
    let what = format!(
        "{files} files have copies on target {}, and for {seconds} s nothing was moved: there is \
         no room or no target for them, or no copy online to move",
        listed(targets)
    );
    Failure::new(what).hint("`weir status` and `weir targets` show which are away or full")
}
