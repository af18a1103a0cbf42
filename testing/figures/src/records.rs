//! What was measured in each round, as CSV: readers, disks, and how both went on.

use crate::outcome::Outcome;
use crate::report::{Report, Table};
use std::io::Result;

const MIB: f64 = (1 << 20) as f64;
const READERS: &str = "reader,bytes,seconds,mib_per_s";
const DISKS: &str = "disk,perturbed,disk_bytes,perturber_bytes,served_bytes,seconds,\
    meanwhile_disk_bytes,meanwhile_perturber_bytes,meanwhile_written_bytes";
const LINKS: &str = "node,perturbed,out_bytes,in_bytes,perturber_bytes,seconds";
const SAMPLES: &str = "what,number,ms,bytes";

/// The tables of an experiment; each row begins with what names its round.
pub struct Records {
    readers: Table,
    disks: Table,
    samples: Table,
    links: Table,
}

impl Records {
    /// `key`: the heads of the columns that name a round.
    pub fn new(report: &Report, key: &str) -> Result<Self> {
        Ok(Self {
            readers: report.table("readers.csv", &format!("{key},{READERS}"))?,
            disks: report.table("disks.csv", &format!("{key},{DISKS}"))?,
            links: report.table("links.csv", &format!("{key},{LINKS}"))?,
            samples: report.table("samples.csv", &format!("{key},{SAMPLES}"))?,
        })
    }

    /// Writes down a round.
    pub fn write(&mut self, key: &[String], perturbed: &[usize], outcome: &Outcome) -> Result<()> {
        self.write_readers(key, outcome)?;
        self.write_links(key, perturbed, outcome)?;
        for (n, disk) in outcome.disks.iter().enumerate() {
            let is_perturbed = u8::from(perturbed.contains(&n)).to_string();
            let before = [disk.disk_bytes, disk.perturber_bytes, disk.served_bytes()];
            let meanwhile = [
                disk.meanwhile_disk_bytes,
                disk.meanwhile_perturber_bytes,
                disk.meanwhile_written_bytes,
            ];
            let seconds = format!("{:.3}", outcome.seconds);
            let values = [n.to_string(), is_perturbed].into_iter();
            let values = values.chain(before.map(|n| n.to_string())).chain([seconds]);
            let values: Vec<String> = values.chain(meanwhile.map(|n| n.to_string())).collect();
            self.disks.row(&[key, &values].concat())?;
            for sample in &outcome.samples {
                let bytes = sample.disks[n].read_bytes - outcome.samples[0].disks[n].read_bytes;
                let at = [n as u64, sample.at.as_millis() as u64, bytes].map(|n| n.to_string());
                self.samples.row(&[key, &["disk".into()], &at].concat())?;
            }
        }
        Ok(())
    }

    fn write_links(
        &mut self,
        key: &[String],
        perturbed: &[usize],
        outcome: &Outcome,
    ) -> Result<()> {
        for (n, link) in outcome.links.iter().enumerate() {
            let is_perturbed = u64::from(perturbed.contains(&n));
            let counts = [link.out_bytes, link.in_bytes, outcome.sent_bytes[n]];
            let numbers = [n as u64 + 1, is_perturbed].into_iter().chain(counts);
            let numbers: Vec<String> = numbers.map(|number| number.to_string()).collect();
            self.links.row(&[key, &numbers, &[format!("{:.3}", outcome.seconds)]].concat())?;
        }
        Ok(())
    }

    fn write_readers(&mut self, key: &[String], outcome: &Outcome) -> Result<()> {
        for (n, (steps, rate)) in outcome.readers.iter().zip(outcome.rates()).enumerate() {
            let bytes = steps[steps.len() - 1].bytes;
            let seconds = bytes as f64 / MIB / rate;
            let values = [n as u64, bytes].map(|n| n.to_string());
            let speed = [seconds, rate].map(|n| format!("{n:.3}"));
            self.readers.row(&[key, &values, &speed].concat())?;
            for step in steps {
                let ms = (step.at_us - steps[0].at_us) / 1_000;
                let at = [n as u64, ms, step.bytes].map(|n| n.to_string());
                self.samples.row(&[key, &["reader".into()], &at].concat())?;
            }
        }
        Ok(())
    }
}
