//! An independent way to the same result, for comparison: both files in memory, and every record of
//! the first one compared with every one of the second.

use crate::fields::{Field, Record};
use crate::index::{MAX_CANDIDATES, read_in_order};
use crate::likeness::{household, keys, score};
use crate::link::Link;
use crate::profiles::Profiles;
use sio::safe::File;
use weir_records::record::RECORD_BYTES;

/// Maximum number of comparisons: some minutes.
pub const MAX_COMPARISONS: u64 = 1 << 32;

/// A customer: the record, and its keys.
type Known = ([u8; RECORD_BYTES], [Option<String>; 2]);

/// The link of each record of the first file, and the profiles that follow.
///
/// # Errors
/// The files cannot be read, or are too long.
pub fn link(first: (&str, u64), second: (&str, u64)) -> Result<(Vec<Link>, Profiles), String> {
    if first.1.saturating_mul(second.1) > MAX_COMPARISONS {
        return Err(format!(
            "--verify compares every record with every customer: {} times {} is more than {MAX_COMPARISONS}",
            first.1, second.1
        ));
    }
    let open = |name: &str| File::open(name).map_err(|e| e.to_string());
    let mut customers: Vec<Known> = Vec::new();
    read_in_order(&open(second.0)?, second.0, 0..second.1, |_, record| {
        let mut bytes = [0; RECORD_BYTES];
        bytes.copy_from_slice(record.bytes());
        customers.push((bytes, keys(record)));
        Ok(())
    })?;
    let (mut links, mut profiles) = (Vec::new(), Profiles::default());
    read_in_order(&open(first.0)?, first.0, 0..first.1, |_, record| {
        let own = keys(record);
        let shares = |(_, (_, keys)): &(usize, &Known)| {
            keys.iter().zip(&own).any(|(one, other)| one.is_some() && one == other)
        };
        let mut link = Link::NONE;
        for (number, (bytes, _)) in customers.iter().enumerate().filter(shares).take(MAX_CANDIDATES)
        {
            link.consider(number as u32, score(record, &Record::new(bytes)?));
        }
        if let Some(number) = link.customer {
            let customer = Record::new(&customers[number as usize].0)?;
            let amount = record.digits(Field::Amount).unwrap_or_default();
            profiles.count(number, &household(&customer), amount);
        }
        links.push(link);
        Ok(())
    })?;
    Ok((links, profiles))
}
