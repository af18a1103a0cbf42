//! The result of a change of names that is done, whose reply is lost, and whose session ends before
//! the client can ask again.

use crate::cluster::Cluster;
use crate::failover::plan;
use crate::plan::{NodeName, Plan};
use crate::shared::Shared;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use weir_client::{Client, ClientConfig, Context};
use weir_host::thread::sleep;
use weir_simhost::Options;
use weir_types::{Error, ErrorKind, FileId, Result};

/// The name of the new directory.
const NAME: &[u8] = b"once";
/// A silent session ends after this time.
const SESSION: Duration = Duration::from_secs(5);
/// Maximum time until the request is done.
const DONE: Duration = Duration::from_millis(200);
/// Interval of looks.
const PAUSE: Duration = Duration::from_millis(1);

/// The result of a client that makes a directory. `lost`: the reply is lost; otherwise the client
/// is unreachable before its request is sent. Errors: what went wrong.
pub fn try_once(lost: bool) -> std::result::Result<Option<ErrorKind>, String> {
    let shared = Rc::new(Shared::new(plan_of()));
    let mut cluster = Cluster::new(shared.clone(), Options::default());
    cluster.set_up()?;
    let parent = FileId(shared.made.borrow().directories[0]);
    let (step, told) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(None)));
    let [client, meta] = [NodeName::Client(0), NodeName::Meta].map(|node| cluster.nodes[&node]);
    let (mine, tells, config) = (step.clone(), told.clone(), cluster.client_config(false));
    let trouble = shared.clone();
    let process = cluster.sim.start(client, "client", move || match make(&config, parent, &mine) {
        Ok(kind) => tells.set(kind),
        Err(error) => *trouble.trouble.borrow_mut() = Some(error.to_string()),
    });
    let deadline = cluster.sim.now() + SESSION;
    cluster.sim.run_until(deadline, |_| step.get() == 1);
    let cut = |cluster: &Cluster| {
        cluster.sim.network().partition(client, meta, true);
        cluster.sim.network().give_up_connections(meta, client);
    };
    if lost {
        cluster.sim.network().partition_one_way(meta, client, true);
        step.set(2);
        cluster.sim.run_for(DONE);
        cut(&cluster);
        cluster.sim.network().give_up_connections(client, meta);
    } else {
        cut(&cluster);
    }
    cluster.sim.run_for(2 * SESSION);
    cluster.sim.network().heal_all();
    cluster.sim.run_for(DONE);
    step.set(2);
    cluster.wait_for(&[process], "make a directory")?;
    Ok(told.get())
}

fn make(config: &ClientConfig, parent: FileId, step: &Cell<u8>) -> Result<Option<ErrorKind>> {
    let (ctx, client) = (Context::root(), Client::connect(config.clone())?);
    client.getattr(&ctx, parent)?;
    step.set(1);
    while step.get() == 1 {
        sleep(PAUSE);
    }
    let told = client.mkdir(&ctx, parent, NAME, 0o755).err().map(|error| error.kind);
    // Nobody else makes it.
    let made = client.lookup(&ctx, parent, NAME);
    client.shutdown();
    match made {
        Ok(_) => Ok(told),
        Err(error) => Err(Error::new(error.kind, format!("it was not made: {error}"))),
    }
}

fn plan_of() -> Plan {
    let mut plan = plan(1, 2);
    plan.shape.session_ms = SESSION.as_millis() as u32;
    plan.shape.lease_ms = plan.shape.session_ms / 2;
    plan
}
