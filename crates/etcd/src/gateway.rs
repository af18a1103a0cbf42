//! Requests to the members of an etcd cluster, over HTTP.

use crate::message::Refused;
use crate::unix;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use ureq::config::Config;
use weir_types::{Error, ErrorKind, Result};

/// The longest wait for one member of several.
const PATIENCE: Duration = Duration::from_secs(1);
/// The longest wait for the only member.
const PATIENCE_WITH_ONE: Duration = Duration::from_secs(2);
/// The most bytes of a reply.
const MAX_REPLY_BYTES: u64 = 64 << 20;
/// The most members.
const MAX_ENDPOINTS: usize = 9;

/// gRPC codes after which another member is asked.
const DEADLINE_EXCEEDED: i32 = 4;
const UNAVAILABLE: i32 = 14;
const NOT_FOUND: i32 = 5;
const RESOURCE_EXHAUSTED: i32 = 8;
const OUT_OF_RANGE: i32 = 11;

/// What to do when etcd has reached its quota.
const WHEN_FULL: &str = "give its members a larger --quota-backend-bytes, run `etcdctl compact` and \
                         `etcdctl defrag --cluster`, then `etcdctl alarm disarm`";

/// A member of etcd.
struct Endpoint {
    /// As configured, for messages.
    shown: String,
    /// The beginning of the URL of each request.
    url: String,
    agent: ureq::Agent,
}

impl Endpoint {
    /// `None` for an invalid address.
    fn new(address: &str, config: &Config, by_tcp: &ureq::Agent) -> Option<Self> {
        let shown = address.to_owned();
        if let Some(path) = address.strip_prefix("unix:") {
            let path = Path::new(path);
            let names_file = path.is_absolute() && path.file_name().is_some();
            let agent = names_file.then(|| unix::agent(config.clone(), path))?;
            return Some(Self { shown, url: unix::URL.to_owned(), agent });
        }
        let rest = address.strip_prefix("http://")?.trim_end_matches('/');
        let is_host = !rest.is_empty() && !rest.contains('/');
        is_host.then(|| Self { shown, url: format!("http://{rest}"), agent: by_tcp.clone() })
    }
}

pub(crate) struct Gateway {
    endpoints: Vec<Endpoint>,
    /// Index of the member that answered last.
    present: AtomicUsize,
}

impl Gateway {
    /// Errors: `InvalidArgument` for an invalid address.
    pub fn new(endpoints: &[String]) -> Result<Self> {
        let bad = |what: String| Err(Error::new(ErrorKind::InvalidArgument, what));
        if endpoints.is_empty() || endpoints.len() > MAX_ENDPOINTS {
            return bad(format!("etcd needs 1 to {MAX_ENDPOINTS} addresses"));
        }
        let patience = if endpoints.len() > 1 { PATIENCE } else { PATIENCE_WITH_ONE };
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .proxy(None)
            .max_redirects(0)
            .timeout_global(Some(patience))
            .build();
        let by_tcp = config.new_agent();
        let endpoint = |address: &String| {
            Endpoint::new(address, &config, &by_tcp).ok_or_else(|| {
                let what =
                    format!("`{address}` is no address of etcd: http://HOST:PORT or unix:/PATH");
                Error::new(ErrorKind::InvalidArgument, what)
            })
        };
        let endpoints = endpoints.iter().map(endpoint).collect::<Result<_>>()?;
        Ok(Self { endpoints, present: AtomicUsize::new(0) })
    }

    /// Sends a request to one member after the other, until one replies. A request may be carried
    /// out more than once.
    pub fn ask<T: DeserializeOwned>(&self, path: &str, request: &Value) -> Result<T> {
        let body = request.to_string();
        let first = self.present.load(Relaxed);
        let mut last = Error::from(ErrorKind::Unreachable);
        for at in (first..first + self.endpoints.len()).map(|at| at % self.endpoints.len()) {
            let endpoint = &self.endpoints[at];
            match self.ask_one(endpoint, path, &body) {
                Ok(reply) => {
                    self.present.store(at, Relaxed);
                    return Ok(reply);
                }
                Err(error) => {
                    last = error.context(format!("etcd at {}", endpoint.shown));
                    if !matches!(last.kind, ErrorKind::Unreachable | ErrorKind::TimedOut) {
                        return Err(last);
                    }
                }
            }
        }
        Err(last)
    }

    fn ask_one<T: DeserializeOwned>(
        &self,
        endpoint: &Endpoint,
        path: &str,
        body: &str,
    ) -> Result<T> {
        let post = endpoint.agent.post(format!("{}{path}", endpoint.url));
        let sent = post.header("content-type", "application/json").send(body);
        let mut reply = sent.map_err(failed)?;
        let text = reply.body_mut().with_config().limit(MAX_REPLY_BYTES).read_to_vec();
        let text = text.map_err(failed)?;
        if reply.status().is_success() {
            return serde_json::from_slice(&text).map_err(|e| {
                Error::new(ErrorKind::Corrupt, format!("an answer that etcd does not give: {e}"))
            });
        }
        let refused: Refused = serde_json::from_slice(&text).unwrap_or_default();
        let kind = match refused.code {
            NOT_FOUND => ErrorKind::NotFound,
            RESOURCE_EXHAUSTED if refused.error.contains("space exceeded") => {
                let what = format!("it is full ({}): {WHEN_FULL}", refused.error);
                return Err(Error::new(ErrorKind::NoSpace, what));
            }
            // Too many requests.
            RESOURCE_EXHAUSTED => ErrorKind::Unreachable,
            OUT_OF_RANGE => ErrorKind::Stale,
            DEADLINE_EXCEEDED => ErrorKind::TimedOut,
            UNAVAILABLE => ErrorKind::Unreachable,
            _ if reply.status().is_server_error() => ErrorKind::Unreachable,
            _ => ErrorKind::Io,
        };
        Err(Error::new(kind, format!("{}: {}", reply.status(), refused.error)))
    }
}

fn failed(error: ureq::Error) -> Error {
    match error {
        ureq::Error::Io(e) => {
            let error = Error::from(e);
            match error.kind {
                ErrorKind::TimedOut => error,
                _ => Error { kind: ErrorKind::Unreachable, ..error },
            }
        }
        ureq::Error::Timeout(_) => Error::new(ErrorKind::TimedOut, "no answer in time"),
        other => Error::new(ErrorKind::Unreachable, other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_cannot_be_one_of_etcd_is_refused() {
        let all = |addresses: &[&str]| {
            Gateway::new(&addresses.iter().map(|&one| one.to_owned()).collect::<Vec<_>>())
        };
        all(&["http://127.0.0.1:2379", "http://etcd-2:2379/", "unix:/run/e:1"]).map(drop).unwrap();
        for wrong in ["127.0.0.1:2379", "https://e:1", "http://", "http://e/x", "unix:e", "unix:/"]
        {
            let wrong = &[wrong][..];
            let error = all(wrong).map(drop).unwrap_err();
            assert_eq!(error.kind, ErrorKind::InvalidArgument, "{wrong:?}");
        }
        assert!(all(&[]).is_err());
    }
}
