//! What administrators order in a run: in processes of their own on a node that never
//! fails, each of which tries until it is obeyed.

use crate::cluster::layout;
use crate::shared::Shared;
use std::rc::Rc;
use std::time::Duration;
use weir_client::{Client, ClientConfig, Context};
use weir_host::thread::sleep;
use weir_types::{ErrorKind, FileId, LayoutSpec, Result, TargetId};

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
}

/// Until it is obeyed.
pub(crate) fn carry_out(order: Order, shared: &Shared, config: &ClientConfig) {
    loop {
        if let Ok(client) = Client::connect(config.clone()) {
            let done = obey(order, shared, &client);
            client.shutdown();
            match done {
                Ok(()) => return,
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
        Order::Drain { target, on } => client.administrator()?.set_target(target, on),
        Order::Even => client.administrator()?.rebalance(1, false),
        Order::Copies { file, copies } => {
            let spec = layout(&shared.plan.shape, usize::from(file));
            let id = FileId(shared.made.borrow().files[usize::from(file)]);
            client.set_layout(&Context::root(), id, Some(LayoutSpec { copies, ..spec }))
        }
    }
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
                *shared.states.borrow_mut() = format!("{busy:?}");
                if busy.is_empty() { quiet + 1 } else { 0 }
            }
        };
    }
}
