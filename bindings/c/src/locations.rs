//! Locations of a file's bytes, and the load of their disks.

use crate::args::{copy_text, list};
use crate::error::{guard, invalid};
use crate::handles::weir_fs_t;
use crate::names::{Named, with_path};
use std::ffi::c_char;
use weir_client::MAX_LOCATIONS;
use weir_wire::map::TargetState;

/// The target serves everything.
pub const WEIR_TARGET_ONLINE: u32 = 0;
/// The target's server is away.
pub const WEIR_TARGET_OFFLINE: u32 = 1;
/// The target's disk has failed. What can still be read is served.
pub const WEIR_TARGET_OUT_OF_SERVICE: u32 = 2;
/// The target is receiving what it has missed.
pub const WEIR_TARGET_SYNCING: u32 = 3;
/// The target is online, but was not heard of for a while.
pub const WEIR_TARGET_SUSPECT: u32 = 4;

/// A copy of consecutive bytes of a file on one target. In a list, copies of the same bytes are
/// adjacent, the first copy first.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct weir_location_t {
    /// First byte, in the file.
    pub offset: u64,
    /// Length, bytes.
    pub len: u64,
    /// Bytes per second that the target serves to all readers while it is busy; 0: unknown, because
    /// nobody has read there lately.
    pub bytes_per_s: u64,
    /// Outstanding requests of all clients at the target.
    pub in_flight: u32,
    /// Number of the copy, from 0.
    pub copy: u32,
    /// Total number of copies.
    pub copies: u32,
    /// The target.
    pub target: u32,
    /// Its data server; 0: the target is no longer in the cluster.
    pub server: u32,
    /// One of WEIR_TARGET_*.
    pub state: u32,
    /// 1: the target has been much slower than others for some time.
    pub slow: u32,
    /// 1: the copy is being made, and is not read yet.
    pub is_filling: u32,
    /// The name of the machine; empty: unknown.
    pub host: [c_char; 256],
    /// `address:port` of the data server; empty: unknown.
    pub address: [c_char; 64],
}

/// Lists the locations of a range of a file, in order, and returns the number of entries. Bytes
/// beyond the end of the file have no location. If the list is full, continue with another call at
/// the end of the last entry. The list has all copies of a range or none.
///
/// # Safety
/// `path` is NULL or a text; `locations` is NULL or has room for `capacity` entries.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_locations(
    fs: weir_fs_t,
    path: *const c_char,
    offset: u64,
    len: u64,
    locations: *mut weir_location_t,
    capacity: usize,
) -> i64 {
    let run = |named: &Named<'_>| {
        let (client, ctx) = (named.client, &named.connection.context);
        client.locations_of(ctx, named.path, offset, len)
    };
    guard(|| {
        if capacity > MAX_LOCATIONS * 8 {
            return Err(invalid(format!("no more than {} entries at once", MAX_LOCATIONS * 8)));
        }
        // SAFETY: the list is checked here and not read.
        unsafe { list(locations.cast_const().cast::<u64>(), capacity.min(1), "locations") }?;
        // SAFETY: by the contract of this function.
        let found = unsafe { with_path(fs, path, run) }?;
        let mut n = 0;
        for location in &found {
            if n + location.copies.len() > capacity {
                if n == 0 {
                    return Err(invalid("the list has no room for all copies of one range"));
                }
                break;
            }
            for copy in &location.copies {
                let place = &copy.place;
                let entry = weir_location_t {
                    offset: location.offset,
                    len: location.len,
                    bytes_per_s: place.bytes_per_s.unwrap_or(0),
                    in_flight: place.in_flight,
                    copy: copy.copy.0.into(),
                    copies: location.copies.len() as u32,
                    target: place.target.0,
                    server: place.server.map_or(0, |server| server.0),
                    state: state(place.state),
                    slow: place.slow.into(),
                    is_filling: copy.is_filling.into(),
                    host: copy_text(&place.host),
                    address: copy_text(&place.address),
                };
                // SAFETY: there is room for `capacity` entries, and this is one of them.
                unsafe { locations.add(n).write(entry) };
                n += 1;
            }
        }
        Ok(n as i64)
    })
}

fn state(state: TargetState) -> u32 {
    match state {
        TargetState::Online => WEIR_TARGET_ONLINE,
        TargetState::Offline => WEIR_TARGET_OFFLINE,
        TargetState::OutOfService => WEIR_TARGET_OUT_OF_SERVICE,
        TargetState::Syncing => WEIR_TARGET_SYNCING,
        TargetState::Suspect => WEIR_TARGET_SUSPECT,
    }
}
