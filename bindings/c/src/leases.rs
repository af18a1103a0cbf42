//! Layout leases. While a program holds one, nobody changes the file or moves its bytes. When
//! somebody wants to, the program is notified and has some time to return the lease (as pNFS
//! layouts, 3.11).
//!
//! A layout lease is a lease on the whole file, with which the metadata server keeps other clients
//! from writing it and from changing its placement (`docs/leases.md`).

use crate::args::{check_place, put};
use crate::error::status;
use crate::handles::{self, Handled, weir_file_t, weir_lease_t, weir_queue_t};
use crate::queue::Queue;
use crate::session::{Open, OpenFile};
use std::ffi::c_int;
use std::sync::Arc;
use weir_types::{Error, ErrorKind, Result};

pub(crate) struct Lease {
    number: u64,
    /// Keeps the file open: the lease of a closed file would protect nothing.
    open: Arc<Open>,
}

impl Handled for Lease {
    const KIND: u64 = 5;
    const NAME: &'static str = "lease";
    const SURVIVES_FORK: bool = false;
}

/// Takes a layout lease on an open file: the result of `weir_locations` stays valid while the lease
/// is held. When somebody wants to change or move the file, `queue` gets a completion of kind
/// WEIR_DONE_RECALL whose `tag` is the lease. The program then has three seconds to finish its work
/// and call `weir_lease_return`. Reads by this process wait meanwhile.
///
/// # Safety
/// `lease` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_layout_lease(
    file: weir_file_t,
    queue: weir_queue_t,
    lease: *mut weir_lease_t,
) -> c_int {
    status(|| {
        check_place(lease, "lease")?;
        let (queue, handle) = (handles::get::<Queue>(queue)?, handles::get::<OpenFile>(file)?);
        let open = handle.open()?;
        // Registered before the lease is granted, so that an immediate recall finds it.
        let number = open.session.recalls.add(handle.id, queue);
        let taken = take(&handle, &open, number);
        match taken {
            // SAFETY: by the contract of this function.
            Ok(given) => unsafe { put(lease, given, "lease") },
            Err(error) => {
                open.session.recalls.give_back(number);
                Err(error)
            }
        }
    })
}

fn take(handle: &OpenFile, open: &Arc<Open>, number: u64) -> Result<u64> {
    open.file.hold_still(&handle.connection.context)?;
    let given = handles::add(Arc::new(Lease { number, open: open.clone() }))?;
    if open.session.recalls.named(number, given) {
        return Ok(given);
    }
    handles::remove::<Lease>(given)?;
    Err(Error::new(ErrorKind::Busy, "somebody else changes the file just now: try again"))
}

/// Returns a layout lease. `-ESTALE` if it was lost before.
#[unsafe(no_mangle)]
pub extern "C" fn weir_lease_return(lease: weir_lease_t) -> c_int {
    status(|| {
        let lease = handles::remove::<Lease>(lease)?;
        let was_held = lease.is_held();
        lease.open.session.recalls.give_back(lease.number);
        match was_held {
            true => Ok(()),
            false => Err(gone()),
        }
    })
}

/// Returns 0 while a layout lease is held, and `-ESTALE` afterwards.
#[unsafe(no_mangle)]
pub extern "C" fn weir_lease_check(lease: weir_lease_t) -> c_int {
    status(|| match handles::get::<Lease>(lease)?.is_held() {
        true => Ok(()),
        false => Err(gone()),
    })
}

fn gone() -> Error {
    Error::new(ErrorKind::Stale, "the lease was taken away: ask for the locations anew")
}

impl Lease {
    fn is_held(&self) -> bool {
        self.open.session.recalls.holds(self.number)
    }
}
