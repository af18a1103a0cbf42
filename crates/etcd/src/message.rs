//! Messages of etcd's JSON gateway. Bytes are base64, 64-bit numbers are strings, and fields of
//! value zero are missing.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

/// The base64 text of bytes.
pub(crate) fn text(bytes: impl AsRef<[u8]>) -> String {
    BASE64_STANDARD.encode(bytes)
}

fn bytes<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
    let text = String::deserialize(from)?;
    BASE64_STANDARD.decode(text).map_err(D::Error::custom)
}

fn number<'de, D: Deserializer<'de>>(from: D) -> Result<i64, D::Error> {
    String::deserialize(from)?.parse().map_err(D::Error::custom)
}

/// A key with its value.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct KeyValue {
    #[serde(default, deserialize_with = "bytes")]
    pub key: Vec<u8>,
    #[serde(default, deserialize_with = "bytes")]
    pub value: Vec<u8>,
    #[serde(default, deserialize_with = "number")]
    pub create_revision: i64,
    #[serde(default, deserialize_with = "number")]
    pub mod_revision: i64,
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct ResponseHeader {
    #[serde(default, deserialize_with = "number")]
    pub revision: i64,
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct RangeResponse {
    #[serde(default)]
    pub header: ResponseHeader,
    #[serde(default)]
    pub kvs: Vec<KeyValue>,
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct OperationResponse {
    pub response_range: Option<RangeResponse>,
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct TxnResponse {
    #[serde(default)]
    pub header: ResponseHeader,
    #[serde(default)]
    pub succeeded: bool,
    #[serde(default)]
    pub responses: Vec<OperationResponse>,
}

impl TxnResponse {
    /// The key that the range request at this index has found.
    pub fn found(&self, at: usize) -> Option<&KeyValue> {
        self.responses.get(at)?.response_range.as_ref()?.kvs.first()
    }
}

/// The reply to a lease grant or a keep-alive.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct LeaseResponse {
    #[serde(rename = "ID", default, deserialize_with = "number")]
    pub id: i64,
    /// Remaining seconds; zero if the lease has ended.
    #[serde(rename = "TTL", default, deserialize_with = "number")]
    pub ttl: i64,
}

/// An element of a stream.
#[derive(Debug, Deserialize)]
pub(crate) struct Streamed<T> {
    pub result: T,
}

/// An error reply of the gateway.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Refused {
    #[serde(default)]
    pub error: String,
    #[serde(default)]
    pub code: i32,
}

/// A comparison that a key was created at this revision (0: it does not exist).
pub(crate) fn created_at(key: &str, revision: i64) -> Value {
    let revision = revision.to_string();
    json!({"key": text(key), "target": "CREATE", "result": "EQUAL", "create_revision": revision})
}

/// A comparison that a key was changed last at this revision (0: it does not exist).
pub(crate) fn changed_at(key: &str, revision: i64) -> Value {
    let revision = revision.to_string();
    json!({"key": text(key), "target": "MOD", "result": "EQUAL", "mod_revision": revision})
}

/// A comparison that a key has this value.
pub(crate) fn has_value(key: &str, value: &str) -> Value {
    json!({"key": text(key), "target": "VALUE", "result": "EQUAL", "value": text(value)})
}

pub(crate) fn put(key: &str, value: impl AsRef<[u8]>) -> Value {
    json!({"request_put": {"key": text(key), "value": text(value)}})
}

pub(crate) fn put_leased(key: &str, value: &str, lease: i64) -> Value {
    let lease = lease.to_string();
    json!({"request_put": {"key": text(key), "value": text(value), "lease": lease}})
}

pub(crate) fn get(key: &str) -> Value {
    json!({"request_range": {"key": text(key)}})
}

pub(crate) fn delete(from: &str, end: &str) -> Value {
    json!({"request_delete_range": {"key": text(from), "range_end": text(end)}})
}

pub(crate) fn txn(compare: &[Value], success: &[Value], failure: &[Value]) -> Value {
    json!({"compare": compare, "success": success, "failure": failure})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_etcd_leaves_out_is_zero_and_what_it_does_not_write_is_refused() {
        let answer: TxnResponse = serde_json::from_str(
            r#"{"header":{"cluster_id":"1","revision":"7"},"responses":[{"response_range":
            {"header":{},"kvs":[{"key":"aw==","create_revision":"5","version":"1"}],"count":"1"}},
            {"response_put":{"header":{}}}]}"#,
        )
        .unwrap();
        assert!(!answer.succeeded);
        assert_eq!(answer.header.revision, 7);
        let found = answer.found(0).unwrap();
        assert_eq!(
            (&found.key[..], &found.value[..], found.create_revision),
            (&b"k"[..], &b""[..], 5)
        );
        assert!(answer.found(1).is_none() && answer.found(9).is_none());
        for wrong in [r#"{"ID":7}"#, r#"{"TTL":"x"}"#, r#"{"ID":"99999999999999999999"}"#] {
            assert!(serde_json::from_str::<LeaseResponse>(wrong).is_err(), "{wrong}");
        }
        assert!(serde_json::from_str::<KeyValue>(r#"{"key":"?"}"#).is_err());
    }
}
