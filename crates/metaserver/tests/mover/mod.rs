//! Copies of files are made, moved and dropped while the files are in use.

mod apart;
mod encoding;
mod evening;
mod flapping;
mod groups;
mod making;
mod moving;
mod servers;
