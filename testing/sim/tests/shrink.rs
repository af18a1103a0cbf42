//! A failing plan is shrunk to a small one that also fails, and a file of it gives the same run. In
//! a process of its own, because a bug is planted in it.

use crate::alone::alone;
use weir_host::plant::{Bug, plant};
use weir_sim::plan::Plan;
use weir_sim::{generate, run, shrink};

#[test]
fn a_failing_plan_becomes_small_and_fails_the_same_way_from_a_file() {
    alone("shrink::a_failing_plan_becomes_small_and_fails_the_same_way_from_a_file", make_small);
}

fn make_small() {
    if !plant(Some(Bug::HalfRename)) {
        return;
    }
    let fails = |plan: &Plan| !run::run(plan).violations.is_empty();
    let seed = std::env::var("WEIR_SEED").map_or(1, |seed| seed.parse().unwrap());
    let plan = (seed..seed + 200)
        .map(|seed| generate::plan(seed, 10_000))
        .find(fails)
        .expect("half a rename is noticed soon");
    let (small, runs) = shrink::shrink(&plan, 400);
    println!(
        "seed {}: {} calls and {} faults became {} and {} in {runs} runs:\n{small}",
        plan.seed,
        plan.ops(),
        plan.faults.len(),
        small.ops(),
        small.faults.len()
    );
    assert!(small.ops() <= 8, "a rename and a look would do");
    assert!(small.faults.is_empty(), "nothing need go wrong for it");
    let text = serde_json::to_string(&small).unwrap();
    let read: Plan = serde_json::from_str(&text).unwrap();
    let (first, second) = (run::run(&read), run::run(&read));
    assert!(!first.violations.is_empty());
    assert_eq!(first.trace_hash, second.trace_hash);
    plant(None);
    assert!(run::run(&read).violations.is_empty(), "without the bug all is well");
}
