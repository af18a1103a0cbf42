//! The boundary to C: `include/sio_fs.h`.

mod attach;
pub mod constants;
mod files;
mod io;
mod types;

pub use attach::*;
pub use files::*;
pub use io::*;
pub use types::*;
