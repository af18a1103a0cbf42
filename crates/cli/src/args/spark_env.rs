//! Command line of `weir spark-env`.

use super::choices::ClientChoice;
use clap::Args;
use std::path::PathBuf;

/// Print what a Spark cluster needs to use this cluster
#[derive(Args)]
#[command(
    after_help = "Without --conf or --json the output is for a shell on each node, before a master, \
        a worker or a program of Spark is started there; with --conf it is for the file \
        spark-defaults.conf of whoever submits programs.\n\n  eval \"$(weir spark-env)\"\n  weir \
        spark-env --conf >> $SPARK_HOME/conf/spark-defaults.conf"
)]
pub struct SparkEnv {
    /// Print lines for spark-defaults.conf
    #[arg(long, conflicts_with = "json")]
    pub conf: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// The jar for Hadoop, which all nodes have at this path [default: the one of `make java` or of
    /// /usr/share/java]
    #[arg(long, value_name = "FILE")]
    pub jar: Option<PathBuf>,
    /// Spark calls the machine of a data server by another name; may be repeated
    #[arg(long = "host", value_name = "HOST=SPARKHOST", value_parser = pair)]
    pub hosts: Vec<(String, String)>,
    /// Seconds that a task waits for a machine that has its data, before it runs elsewhere
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=3600))]
    pub locality_wait: u32,
    #[command(flatten)]
    pub client: ClientChoice,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let is_name = |name: &str| {
        !name.is_empty() && !name.contains(|c: char| c.is_whitespace() || "=,\"'\\".contains(c))
    };
    match text.split_once('=') {
        Some((from, to)) if is_name(from) && is_name(to) => Ok((from.to_owned(), to.to_owned())),
        _ => Err("write the host of a data server, =, and what Spark calls it".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_of_hosts_has_two_names() {
        assert_eq!(pair("a=10.0.0.1"), Ok(("a".to_owned(), "10.0.0.1".to_owned())));
        for wrong in ["a", "a=", "=b", "a=b=c", "a=b c", "a=b,c"] {
            assert!(pair(wrong).is_err(), "{wrong}");
        }
    }
}
