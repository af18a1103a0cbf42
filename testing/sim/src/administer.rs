//! Orders of administrators in a run. Each runs as a process on a node that never fails, and is
//! repeated until it succeeds.

use crate::cluster::{layout, with_copies};
use crate::plan::targets_of;
use crate::shared::Shared;
use std::rc::Rc;
use std::time::Duration;
use weir_client::{Client, ClientConfig, Context};
use weir_host::thread::sleep;
use weir_types::{ErrorKind, FileId, LayoutSpec, Placement, Result, TargetId};

/// Pause between attempts.
const PAUSE: Duration = Duration::from_millis(250);
/// Number of consecutive looks at which all copies must be in order.
const LOOKS: u32 = 8;

/// The orders.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Order {
    /// Starts or stops draining a target: it gets no new data, and its data is moved away.
    Drain { target: TargetId, on: bool },
    /// Sets the number of copies of a file.
    Copies { file: u8, copies: u8 },
    /// Balances the used space of targets.
    Even,
    /// Removes the targets of a data server from the cluster; `force`: the server is lost.
    Remove { server: u8, force: bool },
}

/// Repeats an order until it succeeds.
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
                // This error does not resolve itself.
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
            // The target has been removed meanwhile.
            Err(error) if error.kind == ErrorKind::TargetMissing => Ok(()),
            done => done,
        },
        Order::Even => client.administrator()?.rebalance(1, false),
        Order::Copies { file, copies } => {
            let spec = layout(&shared.plan.shape, usize::from(file));
            let id = FileId(shared.made.borrow().files[usize::from(file)]);
            // Settings that are not named stay. Of the placements, only groups can be set for a
            // file with data.
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

/// Removes a target from the cluster. The error says why it cannot be removed yet.
fn remove(client: &Client, target: TargetId, force: bool) -> Result<()> {
    let administrator = client.administrator()?;
    let gone = |done: Result<()>| match done {
        // An earlier attempt succeeded and its reply was lost.
        Err(error) if error.kind == ErrorKind::TargetMissing => Ok(()),
        done => done,
    };
    if !force {
        gone(administrator.set_target(target, true))?;
    }
    gone(administrator.remove_target(target, force).map(drop))
}

/// Ends when no copy is being made and no work is being searched for. The count of planned work is
/// not used: it may stay above zero when a target is kept after all.
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
