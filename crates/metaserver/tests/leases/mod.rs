//! Many clients, one file system: nothing changes while another client believes
//! otherwise (`docs/leases.md`). Clients are calls of the machine, in virtual
//! time.

mod beliefs;
mod death;
mod hints;
pub mod model;
mod moves;
mod ranges;
mod restart;
mod room;
mod waiting;
pub mod world;

#[test]
fn nobody_ever_believes_what_is_not_so() {
    if let Err(error) = model::run(2000) {
        panic!("{error}");
    }
}
