//! What administrators order in a run: in processes of their own on a node that never
//! fails, each of which tries until it is obeyed.

use crate::cluster::{layout, with_copies};
use crate::plan::targets_of;
use crate::shared::Shared;
use std::rc::Rc;
use std::time::Duration;
use weir_client::{Client, ClientConfig, Context};
use weir_host::thread::sleep;
use weir_types::{ErrorKind, FileId, LayoutSpec, Placement, Result, TargetId};

/// Between attempts.
const PAUSE: Duration = Duration::from_millis(250);
/// So often copies have to be seen in order in turn.
const LOOKS: u32 = 8;

/// What one of them orders.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Order {
    /// Nothing is put on the target, and what is there goes elsewhere; or no longer.
    Drain { target: TargetId, on: bool },
    /// As many copies of a file, from now on.
    Copies { file: u8, copies: u8 },
    /// Targets are to be equally full.
    Even,
    /// The targets of a data server are taken out of the cluster; `force`: it is lost.
    Remove { server: u8, force: bool },
}

/// Until it is obeyed.
pub(crate) fn carry_out(order: Order, shared: &Shared, config: &ClientConfig) {
    loop {
        if let Ok(client) = Client::connect(config.clone()) {
            let done = obey(order, shared, &client);
            client.shutdown();
            match done {
                Ok(()) => {
                    if matches!(order, Order::Remove { .. }) {
                        shared.ordered.set(shared.ordered.get() - 1);
                    }
                    return;
                }
                // Nothing that comes back to order by itself.
                Err(error) if error.kind == ErrorKind::InvalidArgument => {
                    *shared.trouble.borrow_mut() = Some(format!("{order:?}: {error}"));
                    return;
                }
                Err(_) => {}
            }
        }
        sleep(PAUSE);
    }
}

fn obey(order: Order, shared: &Shared, client: &Client) -> Result<()> {
    match order {
        Order::Drain { target, on } => match client.administrator()?.set_target(target, on) {
            // It has been taken out meanwhile.
            Err(error) if error.kind == ErrorKind::TargetMissing => Ok(()),
            done => done,
        },
        Order::Even => client.administrator()?.rebalance(1, false),
        Order::Copies { file, copies } => {
            let spec = layout(&shared.plan.shape, usize::from(file));
            let id = FileId(shared.made.borrow().files[usize::from(file)]);
            // What is not named stays; of placements only groups can be given to what has data.
            let placement = match with_copies(spec, &shared.plan.shape, file.into(), copies) {
                LayoutSpec { placement: Placement::Groups, .. } => Placement::Groups,
                _ => Placement::Usual,
            };
            let wish = LayoutSpec { copies, placement, ..LayoutSpec::default() };
            client.set_layout(&Context::root(), id, Some(wish))
        }
        Order::Remove { server, force } => {
            for target in targets_of(&shared.plan.shape, server) {
                remove(client, TargetId(target), force)?;
                shared.removed.borrow_mut().insert(target);
            }
            Ok(())
        }
    }
}

/// Takes a target out of the cluster. Error: nobody can yet.
fn remove(client: &Client, target: TargetId, force: bool) -> Result<()> {
    let administrator = client.administrator()?;
    let gone = |done: Result<()>| match done {
        // An attempt before this one was not told that it was done.
        Err(error) if error.kind == ErrorKind::TargetMissing => Ok(()),
        done => done,
    };
    if !force {
        gone(administrator.set_target(target, true))?;
    }
    gone(administrator.remove_target(target, force).map(drop))
}

/// Ends when no copy is being made, and nobody looks for what is to be done. (What is counted
/// as to be done stays counted at times when a target is kept after all.)
pub(crate) fn wait_for_moves(shared: Rc<Shared>, config: ClientConfig) {
    const BUSY: [&str; 2] = ["mover.filling", "mover.looking"];
    let mut quiet = 0;
    while quiet < LOOKS {
        sleep(PAUSE);
        quiet = match Client::connect(config.clone()).and_then(|client| {
            let status = client.metadata_status();
            client.shutdown();
            status
        }) {
            Err(_) => 0,
            Ok(status) => {
                let busy =
                    |(name, value): &&(String, u64)| BUSY.contains(&name.as_str()) && *value > 0;
                let busy: Vec<_> = status.counters.iter().filter(busy).collect();
                let ordered = shared.ordered.get();
                *shared.states.borrow_mut() = format!("{busy:?}, {ordered} orders");
                if busy.is_empty() && ordered == 0 { quiet + 1 } else { 0 }
            }
        };
    }
}
