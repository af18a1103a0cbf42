//! Names of daemons.

/// The name of the metadata server's daemon.
pub const META: &str = "meta";

/// The name of a data server's daemon.
pub fn data_name(server: u32) -> String {
    format!("data-{server}")
}

/// Whether a daemon is a metadata server, by its name.
pub fn is_meta(name: &str) -> bool {
    name == META || name.starts_with("meta-")
}

/// Whether a daemon is a data server, by its name.
pub fn is_data(name: &str) -> bool {
    name.starts_with("data-")
}
