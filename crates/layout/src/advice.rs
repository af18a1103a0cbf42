//! Advice on the layout of a file from what its readers will do: the stripe unit and the number of
//! targets with the highest predicted rate.
//!
//! Paper 0 finds that a striped file is read fastest if each call uses as many servers as there
//! are, and asks for stripes that fit the application (section 4). Chen and Patterson, "Maximizing
//! Performance in a Striped Disk Array" (1990), find the opposite limit: with many callers at once,
//! each disk that a call touches costs one more positioning of its head. [`predict`] has both.

/// The smallest stripe unit that is advised: the block of a checksum.
const MIN_UNIT_BYTES: u64 = 4 << 10;
/// The largest stripe unit that is advised.
const MAX_UNIT_BYTES: u64 = 4 << 20;
/// Another layout is advised only if it is faster than the current one by this factor: predictions
/// are not more exact than that.
pub const WORTH: f64 = 1.1;
/// Rates with a relative difference below this count as equal. Of equal layouts the one with the
/// fewest requests is advised: what a request costs grows with the load of the machines.
const SAME: f64 = 0.02;

/// The order in which readers read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// From front to back. Read-ahead joins small calls into long ones.
    Sequential,
    /// Each call at a random place.
    Random,
}

/// The access pattern of a file's readers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Workload {
    /// Bytes of one call; at least 1.
    pub call_bytes: u64,
    /// Readers that read at the same time; at least 1.
    pub readers: u32,
    /// The order of their calls.
    pub order: Order,
}

/// Performance of the machines.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Machines {
    /// Targets that a file can be striped over; at least 1.
    pub targets: u16,
    /// Bytes per second that the link of one client or one server carries.
    pub link_bytes_per_s: f64,
    /// Bytes per second that one disk gives in order.
    pub disk_bytes_per_s: f64,
    /// Time of a seek in seconds: 0 for flash, some 0.008 for a hard disk.
    pub seek_s: f64,
    /// Seconds from a request of a few bytes to its reply.
    pub round_trip_s: f64,
    /// Time by which one more request makes a call longer, seconds.
    pub request_s: f64,
    /// Bytes that a sequential reader requests ahead of its calls.
    pub read_ahead_bytes: u64,
}

/// A stripe unit and a number of targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stripes {
    /// The stripe unit, bytes.
    pub unit_bytes: u64,
    /// Number of targets.
    pub count: u16,
}

/// The bottleneck of a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// The time of one call: a reader waits for one call before it makes the next.
    Latency,
    /// The links of the readers.
    ReaderLinks,
    /// The links of the servers that calls use at the same time.
    ServerLinks,
    /// The disks, including their seeks.
    Disks,
}

/// A predicted rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// Bytes per second of all readers.
    pub bytes_per_s: f64,
    /// The bottleneck.
    pub limit: Limit,
    /// Servers that a call (or a piece of read-ahead) uses on average.
    pub servers_per_call: f64,
}

/// The layout that is advised.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Advice {
    /// The layout that is advised.
    pub stripes: Stripes,
    /// The rate of the advised layout.
    pub prediction: Prediction,
    /// The layout that is in use.
    pub current: Stripes,
    /// The rate of the current layout.
    pub current_prediction: Prediction,
}

/// Predicts the rate of a workload on a layout.
pub fn predict(workload: Workload, machines: Machines, stripes: Stripes) -> Prediction {
    let (unit, count) = (stripes.unit_bytes as f64, f64::from(stripes.count));
    let readers = f64::from(workload.readers.max(1));
    let bytes = match workload.order {
        Order::Random => workload.call_bytes.max(1),
        Order::Sequential => workload.call_bytes.max(machines.read_ahead_bytes).max(1),
    } as f64;
    // A call begins at a random place of a stripe unit.
    let servers = (1.0 + (bytes - 1.0) / unit).min(count);
    // Bytes that the busiest server sends for a call.
    let most = (unit * (bytes / (unit * count)).ceil()).min(bytes);
    let seek = match workload.order {
        Order::Random => machines.seek_s,
        // Several readers at different places of a file make the disk seek.
        Order::Sequential if readers > 1.0 => machines.seek_s,
        Order::Sequential => 0.0,
    };
    let (link, disk) = (machines.link_bytes_per_s, machines.disk_bytes_per_s);
    let call_s =
        machines.round_trip_s + servers * machines.request_s + seek + most / disk + bytes / link;
    // Read-ahead requests the next piece while one arrives, which hides its time.
    let under_way = match workload.order {
        Order::Random => 1.0,
        Order::Sequential => 2.0,
    };
    // Mean number of busy servers while every reader has its calls under way.
    let busy = count * (1.0 - (1.0 - servers / count).powf(readers * under_way));
    let rates = [
        (readers * under_way * bytes / call_s, Limit::Latency),
        (readers * link, Limit::ReaderLinks),
        (busy * link, Limit::ServerLinks),
        (busy * bytes / (servers * seek + bytes / disk), Limit::Disks),
    ];
    let (bytes_per_s, limit) =
        rates.into_iter().min_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or((0.0, Limit::Latency));
    Prediction { bytes_per_s, limit, servers_per_call: servers }
}

/// The layout with the highest predicted rate, or the current one if no other is clearly faster.
/// Among equal ones: the most targets, then the largest stripe unit.
pub fn advise(workload: Workload, machines: Machines, current: Stripes) -> Advice {
    let all = machines.targets.max(1);
    let current_prediction = predict(workload, machines, current);
    let fitting = workload.call_bytes.div_ceil(u64::from(all)).next_multiple_of(MIN_UNIT_BYTES);
    let powers = (0..).map(|n| MIN_UNIT_BYTES << n).take_while(|&unit| unit <= MAX_UNIT_BYTES);
    let units = powers.chain([fitting.clamp(MIN_UNIT_BYTES, MAX_UNIT_BYTES)]);
    let all_stripes =
        units.flat_map(|unit_bytes| (1..=all).map(move |count| Stripes { unit_bytes, count }));
    let predicted: Vec<(Stripes, Prediction)> =
        all_stripes.map(|stripes| (stripes, predict(workload, machines, stripes))).collect();
    let most = predicted.iter().map(|(_, of)| of.bytes_per_s).fold(0.0, f64::max);
    let equal = predicted.into_iter().filter(|(_, of)| of.bytes_per_s >= most * (1.0 - SAME));
    let mut best = equal
        .max_by_key(|(stripes, _)| (stripes.count, stripes.unit_bytes))
        .unwrap_or((current, current_prediction));
    if best.1.bytes_per_s < WORTH * current_prediction.bytes_per_s {
        best = (current, current_prediction);
    }
    Advice { stripes: best.0, prediction: best.1, current, current_prediction }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RECORD: u64 = 838;

    /// Paper 0's machines: 100 Mbit/s, disks of 13 MB/s and more.
    fn paper() -> Machines {
        Machines {
            targets: 8,
            link_bytes_per_s: 12.5e6,
            disk_bytes_per_s: 13.0e6,
            seek_s: 0.0,
            round_trip_s: 300e-6,
            request_s: 100e-6,
            read_ahead_bytes: 0,
        }
    }

    fn random(records: u64, readers: u32) -> Workload {
        Workload { call_bytes: records * RECORD, readers, order: Order::Random }
    }

    const OUR_DEFAULT: Stripes = Stripes { unit_bytes: 64 << 10, count: 8 };
    const PAPER_DEFAULT: Stripes = Stripes { unit_bytes: 8 << 10, count: 8 };

    #[test]
    fn calls_use_one_two_and_all_servers_where_paper_0_says() {
        let servers =
            |records| predict(random(records, 1), paper(), PAPER_DEFAULT).servers_per_call;
        assert!(servers(1) < 1.2);
        assert!(servers(10) > 2.0);
        assert_eq!(servers(79), 8.0);
    }

    #[test]
    fn rates_rise_with_the_call_and_then_stay() {
        let rate = |records| predict(random(records, 1), paper(), PAPER_DEFAULT).bytes_per_s;
        let rates: Vec<f64> = [1, 10, 50, 79, 150].map(rate).into();
        assert!(rates.is_sorted(), "{rates:?}");
        assert!(rate(350) / rate(250) < 1.1);
    }

    #[test]
    fn a_single_record_is_left_on_one_server() {
        let advice = advise(random(1, 7), paper(), PAPER_DEFAULT);
        assert!(advice.prediction.servers_per_call < 1.2, "{advice:?}");
    }

    #[test]
    fn a_lone_reader_of_long_calls_gets_all_servers_at_once() {
        let advice = advise(random(350, 1), paper(), PAPER_DEFAULT);
        assert_eq!(advice.stripes.count, 8);
        assert!(advice.prediction.servers_per_call > 7.0, "{advice:?}");
    }

    #[test]
    fn many_readers_of_disks_with_heads_share_no_call() {
        let machines = Machines { seek_s: 0.008, ..paper() };
        let advice = advise(random(50, 64), machines, PAPER_DEFAULT);
        assert!(advice.prediction.servers_per_call < 1.2, "{advice:?}");
    }

    #[test]
    fn sequential_readers_keep_what_they_have() {
        let machines = Machines { read_ahead_bytes: 8 << 20, ..paper() };
        let workload = Workload { call_bytes: RECORD, readers: 7, order: Order::Sequential };
        let advice = advise(workload, machines, OUR_DEFAULT);
        assert_eq!(advice.stripes, OUR_DEFAULT, "{advice:?}");
    }

    #[test]
    fn calls_of_some_records_keep_a_layout_that_takes_one_request_for_most() {
        let machines = Machines { disk_bytes_per_s: 12.65e6, round_trip_s: 200e-6, ..paper() };
        for order in [Order::Random, Order::Sequential] {
            let workload = Workload { order, ..random(10, 7) };
            let advice = advise(workload, machines, OUR_DEFAULT);
            assert_eq!(advice.stripes, OUR_DEFAULT, "{advice:?}");
        }
        // Longer ones gain by more servers.
        for records in [50, 150] {
            let advice = advise(random(records, 7), machines, OUR_DEFAULT);
            assert!(advice.stripes.unit_bytes < OUR_DEFAULT.unit_bytes, "{advice:?}");
        }
    }

    proptest! {
        #[test]
        fn advice_is_never_below_the_current_layout_and_always_possible(
            call_bytes in 1..(64u64 << 20),
            readers in 1u32..1000,
            sequential: bool,
            targets in 1u16..64,
            link in 1e6..1e10f64,
            disk in 1e6..1e10f64,
            seek_s in 0.0..0.02f64,
            round_trip_s in 1e-6..0.1f64,
        ) {
            let order = if sequential { Order::Sequential } else { Order::Random };
            let machines = Machines {
                targets,
                link_bytes_per_s: link,
                disk_bytes_per_s: disk,
                seek_s,
                round_trip_s,
                request_s: 10e-6,
                read_ahead_bytes: 4 << 20,
            };
            let current = Stripes { count: targets, ..OUR_DEFAULT };
            let advice = advise(Workload { call_bytes, readers, order }, machines, current);
            prop_assert!(advice.prediction.bytes_per_s >= advice.current_prediction.bytes_per_s);
            prop_assert!(advice.prediction.bytes_per_s <= f64::from(readers) * link * 1.001);
            let Stripes { unit_bytes, count } = advice.stripes;
            prop_assert!((1..=targets).contains(&count));
            prop_assert!(unit_bytes.is_multiple_of(MIN_UNIT_BYTES) && unit_bytes <= MAX_UNIT_BYTES);
        }
    }
}
