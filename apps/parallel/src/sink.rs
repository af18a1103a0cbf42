//! The destination of the result in the first process: a file or standard output.

use crate::merge::Output;
use crate::options::Run;
use std::io::{StdoutLock, Write, stdout};
use weir_types::{Error, Result};

/// The destination of the result.
pub enum Sink {
    /// A file.
    File(Output),
    /// Standard output.
    Standard(Box<std::io::BufWriter<StdoutLock<'static>>>),
}

impl Sink {
    /// Opens the output of a run; a file is created or emptied.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn open(run: &Run) -> Result<Self> {
        Ok(match &run.output {
            Some(path) => Self::File(Output::create(&run.tree, path)?),
            None => Self::Standard(Box::new(std::io::BufWriter::new(stdout().lock()))),
        })
    }

    /// Adds bytes.
    ///
    /// # Errors
    /// Those of the file system or of standard output.
    pub fn add(&mut self, bytes: &[u8]) -> Result<()> {
        match self {
            Self::File(output) => output.add(bytes),
            Self::Standard(out) => out.write_all(bytes).map_err(of_standard),
        }
    }

    /// Writes buffered bytes. A file is also made durable.
    ///
    /// # Errors
    /// As [`Sink::add`].
    pub fn finish(self) -> Result<()> {
        match self {
            Self::File(output) => output.finish_durably(),
            Self::Standard(mut out) => out.flush().map_err(of_standard),
        }
    }
}

fn of_standard(error: std::io::Error) -> Error {
    Error::from(error).context("standard output")
}
