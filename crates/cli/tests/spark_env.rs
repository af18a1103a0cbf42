//! What `weir spark-env` prints is what a shell, Spark's file of options and programs take.

use crate::harness::{Place, said};
use std::fs;
use std::process::Command;

/// What a shell has in a variable after what `weir spark-env` has printed.
fn in_a_shell(exports: &str, variable: &str) -> String {
    let mut shell = Command::new("sh");
    shell.env_remove(variable).arg("-c").arg(format!("{exports}\nprintf %s \"${variable}\""));
    said(shell).ok()
}

#[test]
fn a_spark_cluster_is_told_jar_options_names_credential_and_how_long_to_wait() {
    let place = Place::new();
    let cluster = place.up("near", &["--targets", "2"]);
    let map = crate::library::client(&cluster, false).cluster_map().unwrap();
    let host = map.servers[0].host.clone();
    let jar = place.path("it's.jar");
    fs::write(&jar, "").unwrap();
    let (jar, renamed) = (jar.to_str().unwrap(), format!("{host}=worker-7"));
    let flags = ["spark-env", "--jar", jar, "--host", &renamed, "--locality-wait", "7"];
    let with = |more: &[&str]| cluster.weir(&[&flags, more].concat()).ok();

    let said: serde_json::Value = serde_json::from_str(&with(&["--json"])).unwrap();
    let credential = cluster.dir().join("client.toml");
    assert_eq!(said["credential"], credential.to_str().unwrap());
    assert_eq!((&said["jar"], &said["hosts"][&host]), (&jar.into(), &"worker-7".into()));
    // Data servers of `weir up` are on this machine.
    assert_eq!(said["own_name"], "worker-7");
    let options = said["options"].as_object().unwrap();
    assert_eq!(options["spark.hadoop.fs.weir.hosts"], renamed);
    assert_eq!(options["spark.locality.wait"], "7s");
    assert_eq!(options["spark.hadoop.fs.weir.impl"], "weir.hadoop.WeirFileSystem");
    assert_eq!(options["spark.hadoop.fs.weir.near.credential"], said["credential"]);

    // Each option is a line of spark-defaults.conf, the jar too.
    let conf = with(&["--conf"]);
    let lines: Vec<&str> = conf.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(lines.len(), options.len() + 1, "{conf}");
    assert!(lines.contains(&&*format!("spark.jars {jar}")), "{conf}");
    for (key, value) in options {
        assert!(lines.contains(&&*format!("{key} {}", value.as_str().unwrap())), "{conf}");
    }

    let exports = with(&[]);
    assert_eq!(in_a_shell(&exports, "SPARK_DIST_CLASSPATH"), jar);
    assert_eq!(in_a_shell(&exports, "SPARK_LOCAL_HOSTNAME"), "worker-7");
    let submit = in_a_shell(&exports, "SPARK_SUBMIT_OPTS");
    assert!(submit.contains(&format!(" -Dspark.hadoop.fs.weir.hosts={renamed} ")), "{submit}");
    assert!(submit.starts_with("-Dspark."), "{submit}");
    let with_own = format!("SPARK_SUBMIT_OPTS=-Down=1\n{exports}");
    assert_eq!(in_a_shell(&with_own, "SPARK_SUBMIT_OPTS"), format!("-Down=1 {submit}"));

    let text = fs::read_to_string(&credential).unwrap();
    let odd = place.path("odd.toml");
    // With its permissions: others may not read a key.
    fs::copy(&credential, &odd).unwrap();
    fs::write(&odd, text.replace("\"near\"", "\"near $(id)\"")).unwrap();
    let refused = cluster.weir(&["spark-env", "--credential", odd.to_str().unwrap()]);
    refused.fails(&["'near $(id)' cannot be the name of a cluster"]);
    let stranger = cluster.weir(&["spark-env", "--host", "nowhere=worker-1"]);
    stranger.fails(&["no data server is on a machine 'nowhere'", &host]);
    cluster.weir(&["spark-env", "--jar", "missing.jar"]).fails(&["missing.jar", "make java"]);
}
