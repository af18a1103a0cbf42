//! On which machines copies are.

use crate::added_server::{Added, on_host};
use crate::harness::{Cluster, Place, eventually, noise, root, said};
use std::collections::BTreeSet;
use std::fs;

/// The servers with copies of each segment of a file, in the order of the copies.
fn servers(cluster: &Cluster<'_>, name: &str) -> Vec<Vec<u64>> {
    let layout = cluster.weir(&["layout", "--json", name]).json();
    let segments = layout[0]["segments"].as_array().unwrap();
    let server = |object: &serde_json::Value| object["server"].as_u64().unwrap();
    let all = |segment: &serde_json::Value| {
        segment["objects"].as_array().unwrap().iter().map(server).collect()
    };
    segments.iter().map(all).collect()
}

/// The servers with copies of each column of a file's first segment.
fn columns(cluster: &Cluster<'_>, name: &str) -> Vec<BTreeSet<u64>> {
    let layout = cluster.weir(&["layout", "--json", name]).json();
    let mut columns = vec![BTreeSet::new(); layout[0]["count"].as_u64().unwrap() as usize];
    for object in layout[0]["segments"][0]["objects"].as_array().unwrap() {
        let column = object["column"].as_u64().unwrap() as usize;
        columns[column].insert(object["server"].as_u64().unwrap());
    }
    columns
}

fn wait_for(cluster: &Cluster<'_>, targets: &[u64]) {
    let is_there = |target: &u64| {
        let views = cluster.weir(&["targets", "--json"]).json();
        let mut views = views.as_array().unwrap().iter();
        views.any(|view| view["target"] == *target && view["state"] == "online")
    };
    eventually("they have joined", || targets.iter().all(is_there));
}

/// HDFS.
#[test]
fn chunks_have_their_first_copy_on_the_machine_of_their_writer() {
    if !root() {
        return;
    }
    let place = Place::new();
    let cluster = place.up("near", &["--targets", "2"]);
    let _there = [Added::new(&cluster, 10, Some("far"), &[])];
    wait_for(&cluster, &[10]);
    fs::write(place.path("data"), noise(1_000_000, 6)).unwrap();
    cluster.weir(&["mkdir", "/d"]).ok();
    let chunks = ["setlayout", "weir:/d", "--layout", "chunked", "--chunk", "64K"];
    cluster.weir(&[&chunks[..], &["--copies", "2"]].concat()).ok();
    cluster.weir(&["cp", "data", "weir:/d/here"]).ok();
    said(on_host("far", &cluster.command(&["cp", "data", "weir:/d/there"]))).ok();
    said(on_host("nowhere", &cluster.command(&["cp", "data", "weir:/d/away"]))).ok();
    let here = servers(&cluster, "weir:/d/here");
    assert!(here.len() >= 15 && here.iter().all(|on| on[0] < 10 && on[1] == 10), "{here:?}");
    let there = servers(&cluster, "weir:/d/there");
    assert!(there.iter().all(|on| on[0] == 10 && on[1] < 10), "{there:?}");
    let away = servers(&cluster, "weir:/d/away");
    let firsts: BTreeSet<bool> = away.iter().map(|on| on[0] == 10).collect();
    assert_eq!(firsts.len(), 2, "anywhere: {away:?}");
    cluster.weir(&["cp", "weir:/d/there", "back"]).ok();
    assert!(fs::read(place.path("back")).unwrap() == noise(1_000_000, 6));
}

/// All servers are on this machine, as on one with a shelf of disks for each domain.
#[test]
fn copies_are_in_the_domains_that_an_administrator_names_which_are_shown() {
    let place = Place::new();
    let cluster = place.up("racks", &["--targets", "3", "--domain", "rack1"]);
    let _other = Added::new(&cluster, 10, None, &["--domain", "rack2"]);
    wait_for(&cluster, &[10]);
    let views = cluster.weir(&["targets", "--json"]).json();
    let domains: Vec<_> = views.as_array().unwrap().iter().map(|v| v["domain"].clone()).collect();
    assert_eq!(domains, ["rack1", "rack1", "rack1", "rack2"]);
    let text = cluster.weir(&["targets"]).ok();
    assert!(text.contains(", rack1)") && text.contains(", rack2)"), "{text}");
    fs::write(place.path("data"), noise(1_000_000, 6)).unwrap();
    cluster.weir(&["mkdir", "/d"]).ok();
    cluster.weir(&["setlayout", "weir:/d", "--copies", "2"]).ok();
    cluster.weir(&["cp", "data", "weir:/d/apart"]).ok();
    let columns = columns(&cluster, "weir:/d/apart");
    assert!(columns.iter().all(|on| on.len() == 2 && on.contains(&10)), "{columns:?}");
    let layout = cluster.weir(&["layout", "--json", "weir:/d/apart"]).json();
    let shown = layout[0]["segments"][0]["objects"].as_array().unwrap().iter();
    let shown: BTreeSet<&str> = shown.map(|o| o["domain"].as_str().unwrap()).collect();
    assert_eq!(shown, BTreeSet::from(["rack1", "rack2"]));
    // What is said otherwise is refused, and not forgotten.
    cluster.weir(&["up", "--domain", "rack3"]).fails(&["--domain", "data-1.toml"]);
    cluster.weir(&["up", "--domain", "rack1"]).ok();
    let odd = place.weir(&["up", "--name", "odd", "--domain", "rack 7"]);
    assert!(odd.code != Some(0) && odd.err.contains("`rack 7`"), "{odd:?}");
}

#[test]
fn copies_are_parted_when_a_server_is_moved_to_another_rack() {
    let place = Place::new();
    let cluster = place.up("moved", &["--targets", "3"]);
    fs::write(place.path("data"), noise(1_000_000, 6)).unwrap();
    cluster.weir(&["mkfile", "weir:/data", "--copies", "2"]).ok();
    cluster.weir(&["cp", "data", "weir:/data"]).ok();
    cluster.weir(&["down"]).ok();
    let configure = |server: u32, domain: &str| {
        let path = cluster.dir().join(format!("data-{server}.toml"));
        let rest = fs::read_to_string(&path).unwrap();
        let rest: Vec<&str> = rest.lines().filter(|line| !line.starts_with("domain")).collect();
        fs::write(path, format!("domain = \"{domain}\"\n{}\n", rest.join("\n"))).unwrap();
    };
    configure(1, "rack 1");
    cluster.weir(&["up"]).fails(&["`domain`", "`rack 1`", "goes on without data-1"]);
    cluster.weir(&["down"]).ok();
    for (server, domain) in [(1, "rack1"), (2, "rack1"), (3, "rack2")] {
        configure(server, domain);
    }
    cluster.weir(&["up"]).ok();
    eventually("each copy is in another rack", || {
        let columns = columns(&cluster, "weir:/data");
        columns.iter().all(|on| on.len() == 2 && on.contains(&3))
    });
    cluster.weir(&["cp", "weir:/data", "back"]).ok();
    assert!(fs::read(place.path("back")).unwrap() == noise(1_000_000, 6));
}

#[test]
fn of_a_file_with_data_what_is_not_named_stays_and_what_cannot_be_is_refused() {
    let place = Place::new();
    let cluster = place.up("wishes", &["--targets", "4"]);
    fs::write(place.path("data"), noise(1_000_000, 6)).unwrap();
    let file = "weir:/data";
    cluster.weir(&["mkfile", file, "--copies", "2", "--duplication", "client-async"]).ok();
    cluster.weir(&["cp", "data", file]).ok();
    let is = |copies: usize, words: &str| {
        let text = cluster.weir(&["layout", file]).ok();
        let all = columns(&cluster, file);
        text.contains(words) && all.iter().all(|on| on.len() == copies)
    };
    assert!(is(2, "client-async, chained"));
    cluster.weir(&["setlayout", file, "--copies", "3"]).ok();
    eventually("there is a third copy", || is(3, "client-async, chained"));
    let random = ["setlayout", file, "--copies", "2", "--placement", "random"];
    cluster.weir(&random).fails(&["1000000 bytes", "stay where they are", "copy the file"]);
    assert!(is(3, "client-async, chained"), "nothing of it was done");
    cluster.weir(&["setlayout", file, "--copies", "2", "--placement", "groups"]).ok();
    eventually("each group has a copy", || {
        let odd = |on: &BTreeSet<u64>| on.iter().filter(|server| **server % 2 == 1).count();
        is(2, "client-async, groups") && columns(&cluster, file).iter().all(|on| odd(on) == 1)
    });
    cluster.weir(&["cp", file, "back"]).ok();
    assert!(fs::read(place.path("back")).unwrap() == noise(1_000_000, 6));
}

#[test]
fn a_new_cluster_has_a_target_in_each_directory_that_is_named_and_copies_if_asked_for() {
    let place = Place::new();
    let [a, b, c] = ["a", "b", "c"].map(|name| place.path(name).display().to_string());
    let cluster = place.cluster("named");
    let up = ["up", "--data", &a, "--data", &b, "--copies", "2"];
    let said = cluster.weir(&up);
    assert!(said.err.contains("copies that are on one disk are lost with it"), "{said:?}");
    assert!(said.ok().contains("2 targets on 2 data servers"));
    for (target, dir) in [("1", &a), ("2", &b)] {
        let link = cluster.dir().join("targets").join(target);
        assert_eq!(std::fs::read_link(link).unwrap().to_str(), Some(&**dir));
    }
    let default = cluster.weir(&["setlayout", "--json", "weir:/"]).json();
    assert_eq!(default[0]["default"]["copies"], 2, "{default}");
    let said = cluster.weir(&["setlayout", "--copies", "2", "weir:/"]);
    assert!(said.err.contains("on 1 disk: copies on one disk are lost"), "{said:?}");
    said.ok();
    // Once more, and with something else.
    cluster.weir(&up).ok();
    cluster.weir(&["up", "--data", &a]).fails(&["exists and has its targets in", "--data"]);
    cluster.weir(&["up", "--copies", "3"]).fails(&["--copies 2", "weir setlayout"]);
    // What fails leaves nothing of its own, and what there was.
    std::fs::create_dir(&c).unwrap();
    std::fs::write(place.path("c/mine"), "x").unwrap();
    let new = place.path("new/below").display().to_string();
    let other = place.cluster("other");
    let more = ["--data", &new, "--data", &c, "--data", &a];
    let failing = [&["up"], &more[..]].concat();
    other.weir(&failing).fails(&["already served by another process"]);
    assert!(!place.path("new").exists() && !other.dir().exists());
    let left: Vec<_> = std::fs::read_dir(&c).unwrap().flatten().map(|e| e.file_name()).collect();
    assert_eq!(left, ["mine"]);
    assert!(place.path("a/superblock").exists());
    other.weir(&["up", "--targets", "3", "--data", &new]).fails(&["leave out --targets"]);
    // Nor does it take what was no directory.
    let [plain, nowhere] = ["plain", "nowhere"].map(|name| place.path(name).display().to_string());
    std::fs::write(&plain, "x").unwrap();
    std::os::unix::fs::symlink("gone", &nowhere).unwrap();
    for odd in [&plain, &nowhere] {
        other.weir(&["up", "--data", &new, "--data", odd]).fails(&[odd, "has to be a directory"]);
        assert!(std::fs::symlink_metadata(odd).is_ok() && !other.dir().exists());
    }
    // They have the cluster's data, and are not deleted with it: that is said before and after.
    cluster.weir(&["down", "--purge"]).fails(&[&format!("{a}, {b} stay there")]);
    let said = cluster.weir(&["down", "--purge", "--yes"]).ok();
    assert!(said.contains(&format!("but for its objects in {a}, {b}: delete")), "{said}");
    assert!(place.path("a/superblock").exists() && place.path("b/superblock").exists());
    other.weir(&failing).fails(&["it is target 1 already", "delete what is in it"]);
    assert!(place.path("a/superblock").exists() && !place.path("new").exists());
}

#[test]
fn a_cluster_for_other_machines_has_one_target_and_ports_that_are_known() {
    let place = Place::new();
    let cluster = place.cluster("wide");
    let said = cluster.weir(&["up", "--listen", "0.0.0.0", "--copies", "2"]);
    assert!(said.err.contains("no file can be made before there are 2 targets"), "{said:?}");
    let usual = said.out.contains("metadata server at 0.0.0.0:7700\n");
    assert!(usual || said.err.contains("of 0.0.0.0 is taken, so "), "{said:?}");
    assert!(said.ok().contains("1 targets on 1 data servers"));
    let ports = || -> Vec<u16> {
        let list = cluster.weir(&["server", "list", "--json"]).json();
        let address = |server: &serde_json::Value| server["address"].as_str().unwrap().to_owned();
        let all = list.as_array().unwrap().iter().map(address);
        all.map(|at| at.rsplit_once(':').unwrap().1.parse().unwrap()).collect()
    };
    let said = cluster.weir(&["server", "add"]);
    let (first, second) = (ports()[0], ports()[1]);
    assert!(second == first + 1 || said.err.contains("is taken, so "), "{said:?}");
    let alone = place.cluster("alone");
    let said = alone.weir(&["up", "--targets", "1", "--domain", "rack7"]);
    assert!(said.err.contains("--domain keeps nothing apart here"), "{said:?}");
    said.ok();
}
