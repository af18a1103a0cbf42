//! Where the bytes of a file are, and what each disk gives now.

use crate::args::{copy_text, list};
use crate::error::{guard, invalid};
use crate::handles::weir_fs_t;
use crate::names::{Named, with_path};
use std::ffi::c_char;
use weir_client::MAX_LOCATIONS;
use weir_wire::map::TargetState;

/// The target serves.
pub const WEIR_TARGET_ONLINE: u32 = 0;
/// Its server is away.
pub const WEIR_TARGET_OFFLINE: u32 = 1;
/// Its disk has failed, and what can still be read is served.
pub const WEIR_TARGET_OUT_OF_SERVICE: u32 = 2;
/// It is being brought up to date.
pub const WEIR_TARGET_SYNCING: u32 = 3;
/// Online, and not heard of for a while.
pub const WEIR_TARGET_SUSPECT: u32 = 4;

/// A copy of some bytes of a file that follow each other on one target. Copies of the same bytes
/// follow each other in a list, the first copy first.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct weir_location_t {
    /// First byte, in the file.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// Bytes a second that the target serves now while it has something to do, all readers
    /// together; 0: not known, as nobody has read there of late.
    pub bytes_per_s: u64,
    /// Requests that the target has not answered, whoever sent them.
    pub in_flight: u32,
    /// Which copy, from 0 on.
    pub copy: u32,
    /// How many copies there are.
    pub copies: u32,
    /// The target.
    pub target: u32,
    /// Its data server; 0: the target is not part of the cluster any more.
    pub server: u32,
    /// One of WEIR_TARGET_*.
    pub state: u32,
    /// 1: it has been much slower than others for some time.
    pub slow: u32,
    /// 1: the copy is being made, and is not read yet.
    pub is_filling: u32,
    /// The name of the machine; empty: not known.
    pub host: [c_char; 256],
    /// `address:port` of the data server; empty: not known.
    pub address: [c_char; 64],
}

/// The locations of a range of a file, in order: how many entries went to the list. Bytes beyond the
/// end of the file are in no location. If the list is full, another call goes on at the end of
/// the last entry. All copies of a range are in the list, or none.
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
        // SAFETY: only checked here.
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
