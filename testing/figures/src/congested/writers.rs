//! Those who write: each on its node, a file on its disk or on two, or records to all disks.

use super::{CALL_BYTES, MIB, Seen};
use crate::distributed_queue::{self, QUEUE};
use crate::graduated_write::Writing;
use crate::lab;
use std::io::Result;

/// The same machines, with what is written.
pub struct Lab {
    writing: Writing,
}

impl Lab {
    pub fn new(lab: lab::Lab, file_bytes: u64) -> Result<Self> {
        Ok(Self { writing: Writing::new(lab, file_bytes)? })
    }

    pub fn disks(&self) -> &lab::Lab {
        &self.writing.lab
    }

    /// As many writers as disks; it counts when all is durable.
    pub fn round(&self, line: &str) -> Result<Seen> {
        let (lab, writing) = (self.disks(), &self.writing);
        let file_bytes = writing.file_bytes();
        let before = lab.links()?;
        let written = match line {
            QUEUE => distributed_queue::round(lab, QUEUE, lab.disks.len(), writing.input())?,
            "graduated write" => writing.round("graduated", CALL_BYTES)?,
            _ => writing.round(line, CALL_BYTES)?,
        };
        let links = lab.links()?.into_iter().zip(before).map(|(after, b)| after.since(b)).collect();
        let rates = written.ends.iter().map(|end| file_bytes as f64 / MIB / end).collect();
        Ok(Seen { rates, bytes: file_bytes * lab.disks.len() as u64, links })
    }
}
