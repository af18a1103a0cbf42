//! After a power cut a target with a lost gap log still knows what it has heard, and that it has
//! found everything.

use crate::crash::{DIR, target};
use crate::support::{IDENTITY, object_id};
use weir_simhost::disk::{SimDisk, with_disk};
use weir_store::{ELSEWHERE, Note, Target, UNHEARD};
use weir_types::CopyIndex;

#[test]
fn what_others_were_heard_for_and_what_was_found_survives_a_power_cut() {
    for seed in 0..20 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let disk = SimDisk::new(seed);
        with_disk(&disk, 0, || {
            Target::create(DIR, IDENTITY).unwrap();
            let target = target().unwrap();
            target.gaps().keep().unwrap();
            target.drop_unclosed();
        });
        disk.remove_file(&format!("{}/gaps", &DIR[1..])).unwrap();
        with_disk(&disk, 0, || {
            let target = target().unwrap();
            let gaps = target.gaps();
            assert!(gaps.lost_others());
            let object = object_id(1);
            let note = |behind| Note { object, behind, copy: CopyIndex(0), bytes: 0..1 };
            gaps.note_all(&[note(ELSEWHERE), note(UNHEARD)]).unwrap();
            gaps.found().unwrap();
            gaps.heard(object).unwrap();
            target.drop_unclosed();
        });
        disk.power_cut(&mut rng);
        with_disk(&disk, 0, || {
            let target = target().unwrap();
            let gaps = target.gaps();
            assert!(!gaps.lost(), "seed {seed}: it looks for all once more");
            assert!(gaps.of(object_id(1), UNHEARD).is_none(), "seed {seed}: it asks once more");
            assert!(gaps.of(object_id(1), ELSEWHERE).is_some(), "seed {seed}");
            target.drop_unclosed();
        });
    }
}
