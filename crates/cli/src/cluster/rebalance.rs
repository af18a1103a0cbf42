//! `weir rebalance`.

use crate::args::Rebalance;
use crate::cluster::daemon::META;
use crate::cluster::moving::Moving;
use crate::failure::Done;
use crate::files::remote::connect;
use crate::output::print;
use crate::progress::Progress;
use crate::settings;
use std::time::Duration;

/// The interval of checks for progress.
const INTERVAL: Duration = Duration::from_secs(2);

/// Runs `weir rebalance`.
pub fn run(order: &Rebalance) -> Done {
    let cluster = settings::cluster(&order.client)?;
    let client = connect(&cluster.credential()?, "rebalance")?;
    client.administrator()?.rebalance(order.within, order.stop)?;
    if !order.wait {
        return Ok(());
    }
    let progress = Progress::start(false, 0);
    let mut shown = String::new();
    loop {
        let moving = Moving::of(&[(META.to_owned(), client.metadata_status()?)]);
        let moving = moving.unwrap_or_default();
        let text = moving.text();
        progress.say(|| moving.line());
        if text != shown && !progress.is_watched() {
            print(text.trim_start())?;
            shown = text;
        }
        if !moving.rebalancing {
            progress.finish();
            return Ok(());
        }
        // There is no notification of the end.
        std::thread::sleep(INTERVAL);
    }
}
