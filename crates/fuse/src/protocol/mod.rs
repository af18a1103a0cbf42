//! The kernel's protocol: its structs, the parsing of requests, and the encoding of replies.

pub(crate) mod abi;
pub(crate) mod answer;
pub(crate) mod args;
pub(crate) mod dir_sink;
pub(crate) mod encode;
pub(crate) mod errno;
pub(crate) mod request;
