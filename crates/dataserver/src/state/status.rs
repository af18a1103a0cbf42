//! Counters and state of a server, for administrators and metrics.

use super::Shared;
use std::sync::atomic::Ordering::Relaxed;
use weir_host::clock;
use weir_net::server::ServerCounters;
use weir_store::{ELSEWHERE, UNHEARD};
use weir_types::FsUsage;
use weir_wire::data::{ServerStatus, TargetStatus};

impl Shared {
    /// Number of objects with gaps, for the counters.
    fn gaps(&self) -> Vec<(String, u64)> {
        let (mut others, mut own) = (0, 0);
        for disk in &self.disks {
            for (behind, count) in disk.store.gaps().counts() {
                match [disk.served.id, ELSEWHERE, UNHEARD].contains(&behind) {
                    true => own += count,
                    false => others += count,
                }
            }
        }
        vec![("gaps.of_others".into(), others), ("gaps.own".into(), own)]
    }

    /// Results of opening all targets, for the counters.
    fn recovery(&self) -> Vec<(String, u64)> {
        let mut sum = [
            ("unclean_targets", 0),
            ("objects", 0),
            ("bytes", 0),
            ("blocks", 0),
            ("headers", 0),
            ("failed", 0),
            ("damaged_logs", 0),
            ("findings", 0),
        ];
        for disk in &self.disks {
            let found = disk.store.recovery();
            let numbers = [
                u64::from(found.unclean),
                found.objects,
                found.bytes,
                found.blocks,
                found.headers,
                found.failed,
                u64::from(found.log_damaged),
                found.findings,
            ];
            sum.iter_mut().zip(numbers).for_each(|((_, total), n)| *total += n);
        }
        sum.into_iter().map(|(name, n)| (format!("recovery.{name}"), n)).collect()
    }

    /// Counters and state.
    pub(crate) fn status(&self, net_counters: &ServerCounters) -> ServerStatus {
        let mut counters = self.counters.snapshot();
        counters.extend(net_counters.snapshot());
        counters.extend(self.recovery());
        counters.extend(self.gaps());
        let opened = self.disks.iter().map(|disk| {
            let health = disk.health();
            TargetStatus {
                target: disk.served.id,
                dir: disk.store.dir().display().to_string(),
                usage: health.usage,
                in_flight: disk.served.load.in_flight.load(Relaxed),
                queue_depth: disk.served.load.queued.load(Relaxed),
                trouble: health.trouble,
            }
        });
        let unopened = self.unopened.iter().map(|unopened| TargetStatus {
            target: unopened.served.id,
            dir: unopened.dir.display().to_string(),
            usage: FsUsage::default(),
            in_flight: 0,
            queue_depth: 0,
            trouble: unopened.served.unopened.clone().unwrap_or_default(),
        });
        let mut targets: Vec<_> = opened.chain(unopened).collect();
        targets.sort_by_key(|t| t.target);
        let in_trouble = targets.iter().filter(|t| !t.trouble.is_empty()).count() as u64;
        counters.push(("targets.in_trouble".into(), in_trouble));
        let hanging = self.disks.iter().filter(|disk| disk.at_work.hangs().is_some());
        counters.push(("targets.hanging".into(), hanging.count() as u64));
        counters.sort();
        ServerStatus {
            version: env!("CARGO_PKG_VERSION").to_string(),
            uptime_ms: clock::elapsed(self.started).as_millis() as u64,
            connections: net_counters.connections.load(Relaxed) as u32,
            counters,
            targets,
        }
    }
}
