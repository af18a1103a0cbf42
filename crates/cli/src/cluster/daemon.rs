//! Configuration files of the daemons: written by `weir up`, or by hand. Their
//! fields are those of [`MetaServerConfig`] and [`DataServerConfig`].

pub use crate::cluster::names::{META, data_name, is_data, is_meta};

use crate::failure::{Done, Failure};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::path::Path;
use weir_dataserver::DataServerConfig;
use weir_metaserver::MetaServerConfig;

/// Reads a configuration file. Relative paths in it are resolved against its directory.
pub fn read<T: DeserializeOwned + RelativePaths>(path: &Path) -> Done<T> {
    let text = std::fs::read_to_string(path).map_err(|e| Failure::file(path, e))?;
    let mut file: T =
        toml::from_str(&text).map_err(|e| Failure::new(e.to_string()).about(path.display()))?;
    let path = std::path::absolute(path).map_err(|e| Failure::file(path, e))?;
    if let Some(base) = path.parent() {
        file.resolve(base);
    }
    Ok(file)
}

/// Converts a configuration to the text of its file.
pub fn to_text(file: &impl Serialize) -> Done<String> {
    toml::to_string(file).map_err(|e| Failure::new(e.to_string()))
}

/// A configuration whose paths may be relative to its file.
pub trait RelativePaths {
    /// Makes the paths absolute.
    fn resolve(&mut self, base: &Path);
}

impl RelativePaths for MetaServerConfig {
    fn resolve(&mut self, base: &Path) {
        self.dir = base.join(&self.dir);
        self.master_key_file = base.join(&self.master_key_file);
    }
}

impl RelativePaths for DataServerConfig {
    fn resolve(&mut self, base: &Path) {
        self.server_key_file = base.join(&self.server_key_file);
        self.unix = self.unix.as_ref().map(|path| base.join(path));
        for target in &mut self.targets {
            target.dir = base.join(&target.dir);
            target.key_file = base.join(&target.key_file);
        }
    }
}

/// Parses the identity of a cluster from 32 hexadecimal digits.
pub fn cluster_id(text: &str) -> Done<[u8; 16]> {
    let bad = || Failure::new(format!("cluster = '{text}': 32 hexadecimal digits expected"));
    if text.len() != 32 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(bad());
    }
    let id = u128::from_str_radix(text, 16).map_err(|_| bad())?;
    Ok(id.to_be_bytes())
}

/// Writes the identity of a cluster as 32 hexadecimal digits.
pub fn cluster_id_text(id: [u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_relative_to_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data.toml");
        std::fs::write(
            &path,
            "server = 1\nlisten = \"0.0.0.0:7701\"\nmetadata = [\"10.0.0.1:7700\"]\n\
             server_key_file = \"server-1.key\"\n\
             [[targets]]\ntarget = 1\ndir = \"/disks/a\"\nkey_file = \"target-1.key\"\n",
        )
        .unwrap();
        let file: DataServerConfig = read(&path).unwrap();
        assert_eq!(file.server_key_file, dir.path().join("server-1.key"));
        assert_eq!(file.targets[0].dir, Path::new("/disks/a"));
    }

    #[test]
    fn a_cluster_id_is_32_digits() {
        let text = "000102030405060708090a0b0c0d0e0f";
        assert_eq!(cluster_id_text(cluster_id(text).unwrap()), text);
        assert!(cluster_id("+0000000000000000000000000000001").is_err());
    }
}
