//! The kernel's counters of this process, under the names that Prometheus uses.

use crate::logging;
use rustix::process::{Resource, getrlimit};
use weir_metrics::Page;
use weir_metrics::names::{CPU, LOG_LINES_LOST, MAX_FDS, OPEN_FDS, RESIDENT};

/// Adds the counters to a page. A counter that cannot be read is 0.
pub fn tell(page: &mut Page) {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let Used { ticks, pages } = Used::parse(&stat).unwrap_or_default();
    let ticks_per_second = rustix::param::clock_ticks_per_second().max(1);
    page.value(&CPU, ticks as f64 / ticks_per_second as f64);
    page.number(&RESIDENT, pages.saturating_mul(rustix::param::page_size() as u64));
    // The listing itself has one open descriptor.
    let open = std::fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count());
    page.number(&OPEN_FDS, open.saturating_sub(1) as u64);
    page.number(&MAX_FDS, getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX));
    page.number(&LOG_LINES_LOST, logging::lost());
}

/// Processor time and memory in use.
#[derive(Debug, Default, PartialEq, Eq)]
struct Used {
    ticks: u64,
    pages: u64,
}

impl Used {
    fn parse(stat: &str) -> Option<Self> {
        // Field 2 is the name in parentheses, which may contain anything. The other fields are
        // counted from its end.
        let fields: Vec<&str> = stat.get(stat.rfind(')')? + 1..)?.split_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        Some(Self { ticks: field(14)? + field(15)?, pages: field(24)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_memory_are_found_whatever_the_name() {
        let text = "7 (a) b) S 1 7 7 0 -1 4228364 581 0 0 0 120 34 1 0 20 0 2 0 31337 99 77 184";
        assert_eq!(Used::parse(text), Some(Used { ticks: 154, pages: 77 }));
        assert_eq!(Used::parse("7 (a"), None);
        let own = std::fs::read_to_string("/proc/self/stat").unwrap();
        assert!(Used::parse(&own).unwrap().pages > 0);
    }
}
