use super::*;
use crate::args::Arguments;
use crate::cluster::targets::tests::view;
use clap::CommandFactory;
use clap::error::ErrorKind as Refused;

/// Programs that are not ours; everything else in backticks is a command of Weir.
const OTHERS: [&str; 6] = ["dmesg", "iostat", "smartctl", "kill", "systemctl", "timedatectl"];

/// A problem of each kind, with words of its description and of its remedy.
fn table() -> Vec<(&'static str, Trouble, [&'static str; 2])> {
    let text = |text: &str| text.to_owned();
    let replace = || text("`weir target replace 3`");
    let target = |view: TargetView| Trouble::Target(Box::new(view), replace());
    let no_answer = |kind, message: &str| Trouble::NoAnswer {
        server: text("data-2"),
        host: text("node7"),
        error: Error::new(kind, message),
    };
    let online = || view(TargetState::Online);
    let usage = FsUsage { total_bytes: 100 << 30, free_bytes: 4 << 30, ..FsUsage::default() };
    let full = FsUsage { free_bytes: 0, ..usage };
    let (path, log, name) = (text("/mnt/w"), text("/l/w.log"), text("data-2"));
    let down = Trouble::DaemonDown { name: name.clone() };
    let address = text("127.0.0.1:7");
    let no_metrics = Trouble::NoMetrics { name: name.clone(), address };
    let dead = Trouble::MountDead { path: path.clone(), log: log.clone() };
    let stuck = Trouble::MountStuck { path: path.clone(), pid: 7, log };
    let (server, reason, pid) = (name.clone(), text("out of service: read-only"), Some(77));
    let host = text("node7");
    let elsewhere = text("`weir invite --replace 3 | ssh node7 weir join --data DIRECTORY`");
    let host_of_it = host.clone();
    let refuses = Trouble::OutOfService {
        target: 3,
        reason,
        server,
        host: host_of_it,
        pid,
        replace: elsewhere,
    };
    let removed = |joined| Trouble::Removed { name: text("data-2"), joined };
    let (dir, segments) = (text("/s/meta"), 4);
    let version = text("0.0.9");
    vec![
        ("daemon_down", down, ["data-2 does not run", "`weir up` starts it"]),
        ("no_metrics", no_metrics, ["127.0.0.1:7", "weir log data-2"]),
        ("mount_dead", dead, ["mount on /mnt/w has ended", "`weir mount /mnt/w`"]),
        ("mount_stuck", stuck, ["/mnt/w, 7, was killed, and cannot end", "`weir umount /mnt/w`"]),
        ("mount_stopped", Trouble::MountStopped { path, pid: 7 }, ["is stopped", "kill -CONT 7"]),
        (
            "no_answer",
            no_answer(ErrorKind::Unreachable, "no route"),
            ["data-2: no route", "does it run on node7"],
        ),
        (
            "version_differs",
            no_answer(ErrorKind::VersionMismatch, "it speaks 3"),
            ["it speaks 3", "the same release"],
        ),
        ("key_refused", no_answer(ErrorKind::AuthFailed, "x"), ["data-2", "weir key new"]),
        (
            "clock_off",
            no_answer(ErrorKind::BadTicket, "the ticket has expired"),
            ["the clock of node7 (data-2) is off", "timedatectl"],
        ),
        (
            "version_differs",
            Trouble::OtherVersion { server: name, version },
            ["data-2 runs version 0.0.9", "the same release"],
        ),
        ("no_target_online", Trouble::NoTargetOnline { targets: 4 }, ["none of the 4", "weir up"]),
        (
            "out_of_service",
            refuses,
            ["target 3: out of service: read-only", "`kill 77`, then `weir up`; if the disk"],
        ),
        ("server_removed", removed(true), ["data-2, of this machine, was removed", "--purge`"]),
        ("server_removed", removed(false), ["its key is refused", "`weir server remove 2`"]),
        (
            "server_not_known",
            Trouble::NotKnown { name: text("data-2") },
            ["data-2, of this machine, has not been heard of", "`weir log data-2`"],
        ),
        (
            "target_removed",
            Trouble::TargetRemoved { target: 3, dir: text("/d") },
            ["target 3, in /d, was removed", "nobody needs"],
        ),
        (
            "target_offline",
            target(view(TargetState::Offline)),
            ["target 3 is offline since 12s: data-2 on node", "weir target replace 3"],
        ),
        (
            "target_recovering",
            target(TargetView {
                given_up: true,
                trouble: weir_wire::peer::recovering(37),
                ..view(TargetState::Offline)
            }),
            ["makes it ready (recovering, 37 %)", "nothing needs to be done"],
        ),
        (
            "disk_given_up",
            target(TargetView { given_up: true, hangs_ms: 12_300, ..view(TargetState::Offline) }),
            ["hangs since 12s; its server has given it up", "comes back by itself"],
        ),
        (
            "disk_given_up",
            target(TargetView { given_up: true, ..view(TargetState::Offline) }),
            ["answers again", "comes back by itself"],
        ),
        (
            "disk_hangs",
            target(TargetView { hangs_ms: 12_300, ..online() }),
            ["hangs since 12s", "iostat -x"],
        ),
        (
            "target_syncing",
            target(view(TargetState::Syncing)),
            ["7 parts of objects to go, 2/s, 3s left", "nothing needs to be done"],
        ),
        (
            "target_syncing",
            target(TargetView { held_ms: 4_100, ..view(TargetState::Syncing) }),
            ["too often: it is kept waiting for another 5s", "network"],
        ),
        (
            "target_suspect",
            target(TargetView { suspect: true, silent_ms: 2_100, ..online() }),
            ["not been heard of for 2100 ms", "network"],
        ),
        (
            "disk_slow",
            target(TargetView { slow: true, ..online() }),
            ["has become slow", "weir target drain 3"],
        ),
        (
            "target_full",
            Trouble::of_space(3, (2, "node7"), usage).unwrap(),
            ["nearly full: 4.0G of 100G free", "weir target add --server 2"],
        ),
        (
            "target_full",
            Trouble::of_space(3, (2, "node7"), full).unwrap(),
            ["target 3, on node7, is full", "weir target drain 3"],
        ),
        (
            "metadata_full",
            Trouble::of_metadata_space(dir, usage).unwrap(),
            ["/s/meta, is nearly full", "make room"],
        ),
        ("copies_missing", Trouble::CopiesStuck { segments }, ["4 segments", "weir server add"]),
        (
            "copies_without_source",
            Trouble::CopiesWithoutSource { copies: 9 },
            ["9 copies", "weir fsck"],
        ),
        ("rot", Trouble::Rotten { blocks: 2 }, ["2 blocks have rotted", "weir scrub"]),
    ]
}

#[test]
fn what_is_wrong_is_said_in_a_line_and_what_to_do_in_another() {
    for (kind, trouble, [what, remedy]) in table() {
        assert_eq!(trouble.kind(), kind, "{trouble:?}");
        assert!(trouble.what().contains(what), "{what:?} not in: {}", trouble.what());
        assert!(trouble.remedy().contains(remedy), "{remedy:?} not in: {}", trouble.remedy());
        assert_eq!(trouble.text().lines().count(), 2, "{}", trouble.text());
        let noted =
            ["target_full", "metadata_full", "no_metrics", "target_removed"].contains(&kind);
        assert_eq!(trouble.text().starts_with("NOTE: "), noted, "{}", trouble.text());
    }
}

#[test]
fn every_command_that_is_named_can_be_given_as_it_stands() {
    let mut ours = 0;
    for (_, trouble, _) in table() {
        let said = trouble.text();
        assert_eq!(said.matches('`').count() % 2, 0, "{said}");
        let given = said.split('`').skip(1).step_by(2);
        // In a pipeline, the part that another machine runs is a command of its own.
        for command in given.flat_map(|given| given.split(" | ")) {
            let command = match command.strip_prefix("ssh ") {
                Some(there) => there.split_once(' ').unwrap().1,
                None => command,
            };
            let program = command.split(' ').next().unwrap();
            if program != "weir" {
                assert!(OTHERS.contains(&program), "{command} in: {said}");
                continue;
            }
            ours += 1;
            let read = Arguments::command().try_get_matches_from(command.split(' '));
            let refused = read.err().filter(|e| e.kind() != Refused::DisplayVersion);
            assert!(refused.is_none(), "{command} in: {said}\n{}", refused.unwrap());
        }
    }
    assert!(ours > 20, "{ours}");
}

#[test]
fn what_is_well_is_not_told() {
    let plenty = FsUsage { total_bytes: 100, free_bytes: 5, ..FsUsage::default() };
    assert_eq!(Trouble::of_space(1, (1, "node"), plenty), None);
    assert_eq!(Trouble::of_space(1, (1, "node"), FsUsage::default()), None, "not known");
    assert_eq!(Trouble::of_target(&view(TargetState::Online), String::new()), None);
    let out = view(TargetState::OutOfService);
    assert_eq!(Trouble::of_target(&out, String::new()), None, "its server says why");
    let gone = TargetView { given_up: false, ..view(TargetState::Offline) };
    assert!(Trouble::of_target(&gone, String::new()).is_some());
}
