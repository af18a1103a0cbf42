//! Command lines of `weir quota`.

use super::choices::ClientChoice;
use crate::text::{ByteSize, parse_size};
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// Show and set the quotas of users, groups and directories
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(
    after_help = "Without a subcommand it shows the quotas of the caller and of the caller's \
        groups. On a mount it also shows what is left of the quotas of the directory and of those \
        above it. The subcommands need an administrator's credential, such as the one that `weir \
        up` made."
)]
pub struct Quota {
    #[command(subcommand)]
    pub command: Option<QuotaCommand>,
    /// A directory or file on a mount: needs no credential [default: the working directory, if it
    /// is on a mount]
    pub path: Option<PathBuf>,
    #[command(flatten)]
    pub list: QuotaList,
}

/// The subcommands of `weir quota`.
#[derive(Subcommand)]
pub enum QuotaCommand {
    /// Set a quota
    Set(QuotaSet),
    /// Remove a quota and stop counting
    #[command(visible_alias = "remove")]
    Rm(QuotaRemove),
    /// Show all quotas and their usage
    #[command(visible_alias = "ls")]
    List(QuotaList),
}

#[derive(Args)]
pub struct QuotaSet {
    /// Subject: user:NAME, group:NAME (or numbers), or dir:/PATH
    #[arg(value_parser = parse_subject)]
    pub subject: SubjectName,
    /// Maximum number of bytes, as the sum of file sizes; `none`: no limit
    #[arg(long, value_parser = parse_bytes, value_name = "SIZE")]
    pub bytes: Option<Limit>,
    /// Maximum number of files and directories; `none`: no limit
    #[arg(long, value_parser = parse_files, value_name = "N")]
    pub files: Option<Limit>,
    /// Wait until the existing files have been counted
    #[arg(long)]
    pub wait: bool,
    #[command(flatten)]
    pub client: ClientChoice,
}

#[derive(Args)]
pub struct QuotaRemove {
    /// Subject: user:NAME, group:NAME (or numbers), or dir:/PATH
    #[arg(value_parser = parse_subject)]
    pub subject: SubjectName,
    #[command(flatten)]
    pub client: ClientChoice,
}

#[derive(Args)]
pub struct QuotaList {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub client: ClientChoice,
}

/// A limit, or no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit(pub Option<u64>);

fn parse_bytes(text: &str) -> Result<Limit, String> {
    match text {
        "none" => Ok(Limit(None)),
        size => parse_size(size).map(|ByteSize(bytes)| Limit(Some(bytes))),
    }
}

fn parse_files(text: &str) -> Result<Limit, String> {
    match text {
        "none" => Ok(Limit(None)),
        number => {
            let wrong = |_| "not a number of files: try 100000, or none".to_owned();
            number.parse().map(|files| Limit(Some(files))).map_err(wrong)
        }
    }
}

/// The subject of a quota, as given on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubjectName {
    /// A user, by name or number.
    User(String),
    /// A group, by name or number.
    Group(String),
    /// The path of a directory in the file system.
    Directory(String),
}

/// Parses the subject of a quota.
pub fn parse_subject(text: &str) -> Result<SubjectName, String> {
    let wrong = || "whose? user:NAME, group:NAME or dir:/PATH".to_owned();
    let (kind, name) = text.split_once(':').ok_or_else(wrong)?;
    match kind {
        _ if name.is_empty() => Err(wrong()),
        "user" => Ok(SubjectName::User(name.to_owned())),
        "group" => Ok(SubjectName::Group(name.to_owned())),
        "dir" => Ok(SubjectName::Directory(name.to_owned())),
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whose_quota_it_is_says_what_and_who() {
        assert_eq!(parse_subject("user:alice"), Ok(SubjectName::User("alice".into())));
        assert_eq!(parse_subject("group:100"), Ok(SubjectName::Group("100".into())));
        assert_eq!(parse_subject("dir:weir:/a"), Ok(SubjectName::Directory("weir:/a".into())));
        for bad in ["alice", "user:", "project:7", ""] {
            assert!(parse_subject(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_limit_is_a_number_or_none() {
        assert_eq!(parse_bytes("10G"), Ok(Limit(Some(10 << 30))));
        assert_eq!(parse_bytes("none"), Ok(Limit(None)));
        assert_eq!(parse_files("100000"), Ok(Limit(Some(100_000))));
        assert_eq!(parse_files("none"), Ok(Limit(None)));
        assert!(parse_files("-1").is_err() && parse_bytes("much").is_err());
    }
}
