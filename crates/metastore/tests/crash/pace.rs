//! A slow disk makes all commits a little slower; no commit waits for long.

use crate::room::{DIR, config, new_disk};
use std::path::Path;
use std::time::Duration;
use weir_host::clock;
use weir_metastore::{Embedded, EmbeddedConfig, Engine as _, transact};
use weir_types::Error;

#[test]
fn no_commit_waits_long_for_a_group_commit_that_takes_seconds() {
    let disk = new_disk(5);
    weir_simhost::run(5, &disk, || {
        let generation = 64 << 10;
        let config = EmbeddedConfig {
            generation_bytes: generation,
            max_generation_bytes: 4 * generation,
            ..config()
        };
        let mut engine = Embedded::open(Path::new(DIR), config, || {}).expect("open");
        disk.set_latency(
            Duration::ZERO..Duration::ZERO,
            Duration::from_secs(1)..Duration::from_secs(2),
        );
        let start = clock::now();
        let mut longest = Duration::ZERO;
        let mut done = 0u32;
        while clock::elapsed(start) < Duration::from_secs(60) {
            let begin = clock::now();
            let value = [done as u8; 1000];
            transact::<_, Error>(&mut engine, |tx| Ok(tx.put(&done.to_be_bytes(), &value)?))
                .expect("commit");
            engine.flush().expect("flush");
            engine.poll().expect("poll");
            longest = longest.max(clock::elapsed(begin));
            done += 1;
        }
        assert!(longest < Duration::from_millis(250), "{longest:?}");
        // At least the number that redb can take in meanwhile.
        assert!(done > 1000, "{done}");
        disk.set_latency(Duration::ZERO..Duration::ZERO, Duration::ZERO..Duration::ZERO);
        engine.close().expect("close");
    });
}
