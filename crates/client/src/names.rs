//! Names and attributes of files, from the cache or the metadata server.

mod allocated;
mod attributes;
mod set_attr;
