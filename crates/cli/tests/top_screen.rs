//! `weir top` on a real terminal.

use crate::harness::{Place, WEIR, eventually};
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

#[test]
fn it_shows_disks_on_a_terminal_until_q_and_leaves_it_as_it_was() {
    if Command::new("script").arg("--version").output().is_err() {
        println!("skipped: needs script, of bsdutils");
        return;
    }
    let place = Place::new();
    let cluster = place.up("screen", &["--targets", "3"]);
    let order = format!("stty rows 24 cols 100; {WEIR} top -d 0.2; echo ended $?");
    let environment = cluster.command(&["top"]);
    let mut command = Command::new("script");
    for (name, value) in environment.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.args(["-q", "-e", "-c", &order, "/dev/null"]).env("TERM", "xterm");
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut terminal = command.spawn().unwrap();
    let (mut keys, mut screen) = (terminal.stdin.take().unwrap(), terminal.stdout.take().unwrap());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sees = seen.clone();
    let reader = std::thread::spawn(move || {
        let mut part = [0; 4096];
        while let Ok(n) = screen.read(&mut part) {
            if n == 0 {
                break;
            }
            sees.lock().unwrap().extend_from_slice(&part[..n]);
        }
    });
    let text = || String::from_utf8_lossy(&seen.lock().unwrap()).into_owned();
    eventually("disks are shown", || {
        let text = text();
        text.contains("TARGET") && text.contains("data-3") && text.contains("q quit")
    });
    keys.write_all(b"s q").unwrap();
    eventually("it ends", || text().contains("ended 0"));
    drop(keys);
    assert!(terminal.wait().unwrap().success());
    reader.join().unwrap();
    // The earlier screen is there again.
    let text = text();
    let (entered, left) =
        (text.find("\u{1b}[?1049h").unwrap(), text.find("\u{1b}[?1049l").unwrap());
    assert!(entered < left && left < text.find("ended 0").unwrap());
}
