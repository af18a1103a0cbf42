//! Tests on local files, and of refused options.

use crate::runs::{
    COUNT, GREP, NEEDLE, SORT, command, counted, found, job, left, printed, records, said, sorted,
    text,
};
use std::fs;
use std::path::Path;

fn at(dir: &Path, program: &str, arguments: &[&str]) -> std::process::Command {
    let mut command = command(program, arguments);
    command.current_dir(dir);
    command
}

#[test]
fn any_number_of_processes_and_any_memory_give_the_same_outputs() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let (text, records) = (text(8_000), records(30_001));
    let (first, second) =
        text.split_at(text.len() / 3 + text[text.len() / 3..].find('\n').unwrap() + 1);
    fs::create_dir(dir.join("in")).unwrap();
    fs::write(dir.join("in/a"), first).unwrap();
    fs::write(dir.join("in/b"), second).unwrap();
    fs::write(dir.join("in/c"), "").unwrap();
    fs::write(dir.join("records"), &records).unwrap();
    // An odd block size, and less memory than records.
    let few = ["--block", "70000", "--memory", "1MiB"];
    for (ranks, options) in [(1, &[][..]), (1, &few), (4, &few), (7, &[])] {
        let run = |name: &str, program: &str, arguments: &[&str]| {
            let arguments = [arguments, options].concat();
            printed(&job((name, ranks), |_| at(dir, program, &arguments)))
        };
        assert!(run("grep", GREP, &[NEEDLE, "in"]) == found(&text), "{ranks}");
        let number = run("grep", GREP, &["--count", NEEDLE, "in"]);
        assert_eq!(number, format!("{}\n", found(&text).lines().count()));
        run("count", COUNT, &["in", "--output", "words"]);
        assert!(fs::read_to_string(dir.join("words")).unwrap() == counted(&text), "{ranks}");
        run("sort", SORT, &["records", "--output", "sorted"]);
        assert!(fs::read(dir.join("sorted")).unwrap() == sorted(&records), "{ranks}");
        assert_eq!(left(dir), Vec::<String>::new());
    }
    let checked = at(dir, SORT, &["--check", "records", "sorted"]).output().unwrap();
    assert!(checked.status.success() && said(&checked.stdout).contains("30001 records"));
}

#[test]
fn each_process_says_what_it_did() {
    let dir = tempfile::tempdir().unwrap();
    let generated = at(dir.path(), SORT, &["--generate", "1MB", "in"]).output().unwrap();
    assert!(generated.status.success(), "{generated:?}");
    let all = job(("json", 3), |_| at(dir.path(), SORT, &["in", "--output", "out", "--json"]));
    printed(&all);
    let told: Vec<serde_json::Value> =
        all.iter().map(|one| serde_json::from_slice(&one.stderr).unwrap()).collect();
    let sum = |key: &str| told.iter().map(|one| one[key].as_u64().unwrap()).sum::<u64>();
    assert_eq!(
        [sum("records"), sum("input_bytes"), sum("output_bytes")],
        [10_000, 1_000_000, 1_000_000]
    );
    for one in &told {
        // Because of the sample, no range is much larger than the others.
        let records = one["records"].as_u64().unwrap();
        assert!((2_000..5_000).contains(&records), "{told:?}");
        assert!(one["phases"]["read and send"].is_number() && one["ranks"] == 3, "{one}");
    }
}

#[test]
fn a_process_that_fails_ends_the_others_and_one_that_is_missing_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    fs::write(dir.join("in"), format!("{NEEDLE} {}\n", "x".repeat(1_000)).repeat(5_000)).unwrap();
    let outputs = job(("fails", 2), |rank| {
        let memory = if rank == 1 { "1MiB" } else { "64MiB" };
        at(dir, GREP, &[NEEDLE, "in", "--memory", memory, "--block", "64KiB"])
    });
    let errors: Vec<String> = outputs.iter().map(|output| said(&output.stderr)).collect();
    assert_eq!(outputs[0].status.code(), Some(2));
    assert!(errors[0].contains("process 1 of the job has failed: more lines"), "{errors:?}");
    assert!(errors[1].contains("--count"), "{errors:?}");
    // The leftovers of a failed job are refused, with advice.
    let again = job(("fails", 2), |_| at(dir, GREP, &[NEEDLE, "in"]));
    assert!(again.iter().all(|one| said(&one.stderr).contains("--job")), "{again:?}");
    let mut alone = at(dir, GREP, &[NEEDLE, "in", "--timeout", "1"]);
    alone.env("WEIR_JOB", "late").env("WEIR_RANK", "0").env("WEIR_RANKS", "3");
    let late = said(&alone.output().unwrap().stderr);
    assert!(late.contains("2 of 3 processes") && late.contains("1, 2"), "{late}");
}

#[test]
fn what_makes_no_sense_is_refused_with_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    fs::write(dir.join("in"), "x".repeat(250)).unwrap();
    let refused = |program: &str, arguments: &[&str], words: &[&str]| {
        let output = at(dir, program, arguments).output().unwrap();
        let error = said(&output.stderr);
        assert!(!output.status.success(), "{arguments:?}");
        assert!(words.iter().all(|word| error.contains(word)), "{arguments:?}: {error}");
    };
    refused(GREP, &["x", "no"], &["no: no such file"]);
    refused(GREP, &["", "in"], &["empty"]);
    refused(GREP, &["x", "in", "--read", "take"], &["weir:/PATH"]);
    refused(GREP, &["x", "in", "weir:/in"], &["in one cluster"]);
    refused(GREP, &["x", "in", "--block", "1"], &["4 KiB to 64 MiB"]);
    refused(COUNT, &["in", "--memory", "5"], &["1 MiB or more"]);
    refused(COUNT, &["in", "--memory", "5x"], &["unknown unit 'x'"]);
    refused(SORT, &["in"], &["--output FILE"]);
    refused(SORT, &["in", "--output", "out"], &["in: 50 bytes are left"]);
    refused(COUNT, &["in", "--output", "./in"], &["the output is an input too"]);
    refused(SORT, &["--check", "in"], &["ends within a record"]);
    assert_eq!(fs::read(dir.join("in")).unwrap().len(), 250);
    assert_eq!(left(dir), Vec::<String>::new());
    let none = at(dir, GREP, &["nothing", "in"]).output().unwrap();
    assert_eq!(none.status.code(), Some(1));
}
