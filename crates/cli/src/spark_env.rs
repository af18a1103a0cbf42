//! `weir spark-env`: what the nodes of a Spark cluster need, as `export`s for a shell, as lines of
//! spark-defaults.conf, or as JSON.

use crate::args::SparkEnv;
use crate::failure::{Done, Failure};
use crate::files::remote::connect;
use crate::output::{print, print_json};
use crate::settings::{self, Cluster};
use serde_json::json;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Where the package of a distribution has jars.
const JARS: &str = "/usr/share/java";
/// From the directory of a program that Cargo has built to the jar of `make java`.
const BUILT: &str = "../java/maven";

/// Runs `weir spark-env`.
pub fn run(asked: &SparkEnv) -> Done {
    let cluster = settings::cluster(&asked.client)?;
    let credential = cluster.credential()?;
    // It stands in names of options, in addresses, and in what a shell runs.
    weir_connect::check_name(&credential.cluster)?;
    let file = match &cluster {
        Cluster::Here(state) => state.credential_file(),
        Cluster::Elsewhere(file) => file.clone(),
    };
    let map = connect(&credential, "spark-env")?.cluster_map()?;
    let needs = Needs {
        jar: jar(asked.jar.as_deref())?,
        credential: text(&settings::absolute(&file)?)?,
        hosts: map.servers.iter().map(|server| server.host.clone()).collect(),
        renamed: renamed(&asked.hosts, map.servers.iter().map(|server| &*server.host))?,
        locality_wait_s: asked.locality_wait,
        here: weir_host::host_name(),
        cluster: credential.cluster,
    };
    match (asked.json, asked.conf) {
        (true, _) => print_json(&needs.json()),
        (false, true) => print(&needs.conf()),
        (false, false) => print(&needs.exports()),
    }
}

/// What is printed.
struct Needs {
    cluster: String,
    /// `None`: none was found.
    jar: Option<String>,
    credential: String,
    /// The machines of the data servers.
    hosts: BTreeSet<String>,
    /// What Spark calls some of them.
    renamed: Vec<(String, String)>,
    locality_wait_s: u32,
    /// The name of this machine.
    here: String,
}

impl Needs {
    /// Options of a program of Spark, but for the jar.
    fn options(&self) -> Vec<(String, String)> {
        let mut options = vec![
            ("spark.hadoop.fs.weir.impl".into(), "weir.hadoop.WeirFileSystem".into()),
            ("spark.hadoop.fs.AbstractFileSystem.weir.impl".into(), "weir.hadoop.WeirFs".into()),
            (format!("spark.hadoop.fs.weir.{}.credential", self.cluster), self.credential.clone()),
        ];
        if !self.renamed.is_empty() {
            let pairs: Vec<String> =
                self.renamed.iter().map(|(from, to)| format!("{from}={to}")).collect();
            options.push(("spark.hadoop.fs.weir.hosts".into(), pairs.join(",")));
        }
        options.push(("spark.locality.wait".into(), format!("{}s", self.locality_wait_s)));
        options
    }

    /// What Spark calls a machine.
    fn called<'a>(&'a self, host: &'a str) -> &'a str {
        let renamed = self.renamed.iter().find(|(from, _)| from == host);
        renamed.map_or(host, |(_, to)| to)
    }

    /// The name of a worker on this machine; `None`: no data server is on it.
    fn own_name(&self) -> Option<&str> {
        self.hosts.contains(&self.here).then(|| self.called(&self.here))
    }

    /// What people have to know, a line each.
    fn notes(&self) -> Vec<String> {
        let hosts: Vec<&str> = self.hosts.iter().map(|host| self.called(host)).collect();
        let mut notes = vec![
            format!("weir://{}/ for Spark.", self.cluster),
            format!("Start a worker under each of these names: {}.", hosts.join(" ")),
            format!("Each node reads the credential from its own disk: {}.", self.credential),
        ];
        if self.jar.is_none() {
            notes.push(jar_missing());
        }
        notes
    }

    fn exports(&self) -> String {
        let mut text: String = self.notes().iter().map(|note| format!("# {note}\n")).collect();
        if let Some(jar) = &self.jar {
            let path = quoted(jar);
            // A string takes everything, here and below.
            _ = writeln!(
                text,
                "export SPARK_DIST_CLASSPATH={path}\"${{SPARK_DIST_CLASSPATH:+:$SPARK_DIST_CLASSPATH}}\""
            );
        }
        if let Some(name) = self.own_name() {
            _ = writeln!(text, "export SPARK_LOCAL_HOSTNAME={}", quoted(name));
        }
        let options: Vec<String> = self
            .options()
            .iter()
            // The launcher of Spark splits them at blanks that are not in quotes.
            .map(|(key, value)| match value.contains(char::is_whitespace) {
                true => format!("\"-D{key}={value}\""),
                false => format!("-D{key}={value}"),
            })
            .collect();
        let options = quoted(&options.join(" "));
        // Behind what the node has there already.
        _ = writeln!(
            text,
            "export SPARK_SUBMIT_OPTS=\"${{SPARK_SUBMIT_OPTS:+$SPARK_SUBMIT_OPTS }}\"{options}"
        );
        text
    }

    fn conf(&self) -> String {
        let mut text: String = self.notes().iter().map(|note| format!("# {note}\n")).collect();
        let jar = self.jar.iter().map(|jar| ("spark.jars".to_owned(), jar.clone()));
        for (key, value) in jar.chain(self.options()) {
            _ = writeln!(text, "{key} {value}");
        }
        text
    }

    fn json(&self) -> serde_json::Value {
        let options: serde_json::Map<_, _> =
            self.options().into_iter().map(|(key, value)| (key, value.into())).collect();
        let hosts: serde_json::Map<_, _> =
            self.hosts.iter().map(|host| (host.clone(), self.called(host).into())).collect();
        json!({
            "cluster": self.cluster,
            "jar": self.jar,
            "jar_missing": self.jar.is_none().then(jar_missing),
            "credential": self.credential,
            "hosts": hosts,
            "own_name": self.own_name(),
            "options": options,
        })
    }
}

fn jar_name() -> String {
    format!("weir-hadoop-{}.jar", env!("CARGO_PKG_VERSION"))
}

fn jar_missing() -> String {
    format!(
        "The jar is missing: `make java` in the source of Weir makes {}; say --jar FILE.",
        jar_name()
    )
}

/// The jar that was named, or the one of this release in the usual places.
fn jar(named: Option<&Path>) -> Done<Option<String>> {
    if let Some(jar) = named {
        if !jar.is_file() {
            return Err(Failure::new(format!("{}: no such file", jar.display()))
                .hint("`make java` in the source of Weir makes the jar"));
        }
        return text(&settings::absolute(jar)?).map(Some);
    }
    let program = std::env::current_exe().and_then(std::fs::canonicalize).ok();
    let built = program.as_deref().and_then(Path::parent).map(|dir| dir.join(BUILT));
    let places = built.into_iter().chain([PathBuf::from(JARS)]);
    let found = places.map(|dir| dir.join(jar_name())).find(|jar| jar.is_file());
    let found = found.map(|jar| jar.canonicalize().map_err(|e| Failure::file(&jar, e)));
    found.transpose()?.as_deref().map(text).transpose()
}

/// A path as text, for files that have one entry in a line.
fn text(path: &Path) -> Done<String> {
    let fits = |text: &&str| !text.contains(|c: char| c.is_control() || "\"\\".contains(c));
    let path_text = path.to_str().filter(fits).map(str::to_owned);
    path_text.ok_or_else(|| {
        Failure::new(format!("Spark's files cannot have the path {path:?}"))
            .hint("move the file to a path of plain characters")
    })
}

/// Checks that the machines which Spark calls otherwise are of this cluster.
fn renamed<'a>(
    pairs: &[(String, String)],
    known: impl Iterator<Item = &'a str> + Clone,
) -> Done<Vec<(String, String)>> {
    let stranger = pairs.iter().find(|(from, _)| !known.clone().any(|host| host == from));
    if let Some((host, _)) = stranger {
        let all: BTreeSet<&str> = known.collect();
        let all: Vec<&str> = all.into_iter().collect();
        return Err(Failure::new(format!("no data server is on a machine '{host}'"))
            .hint(format!("they are on: {}", all.join(", "))));
    }
    Ok(pairs.to_vec())
}

/// A word for a shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needs() -> Needs {
        Needs {
            cluster: "demo".into(),
            jar: None,
            credential: "/etc/it's here/client.toml".into(),
            hosts: ["node1", "node2"].map(str::to_owned).into(),
            renamed: vec![("node1".into(), "10.0.0.1".into())],
            locality_wait_s: 3,
            here: "node1".into(),
        }
    }

    #[test]
    fn a_worker_gets_the_name_that_spark_has_for_its_machine() {
        let mut needs = needs();
        assert_eq!(needs.own_name(), Some("10.0.0.1"));
        needs.here = "node2".into();
        assert_eq!(needs.own_name(), Some("node2"));
        needs.here = "laptop".into();
        assert_eq!(needs.own_name(), None);
        assert!(!needs.exports().contains("SPARK_LOCAL_HOSTNAME"));
    }

    #[test]
    fn who_has_no_jar_is_told_how_to_get_it() {
        let needs = needs();
        assert!(needs.conf().contains("make java") && needs.exports().contains("make java"));
        assert!(!needs.conf().contains("spark.jars") && !needs.exports().contains("CLASSPATH"));
        assert!(needs.json()["jar"].is_null());
        assert!(jar(Some(Path::new("/no/such.jar"))).is_err());
    }

    #[test]
    fn a_host_that_the_cluster_does_not_have_is_refused_with_those_that_it_has() {
        let pair = |from: &str| [(from.to_owned(), "worker".to_owned())];
        let known = ["a", "b", "a"];
        assert_eq!(renamed(&pair("b"), known.into_iter()).unwrap(), pair("b"));
        let failure = renamed(&pair("c"), known.into_iter()).unwrap_err();
        assert!(failure.hint.unwrap().ends_with("a, b"));
    }
}
