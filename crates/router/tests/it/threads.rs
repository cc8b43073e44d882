//! Many threads at once.

use std::sync::atomic::{AtomicU32, Ordering};

use homing_profile::{Millis, Time};
use homing_router::{RouterConfig, Verdict};

use crate::world::{World, config, question};

#[test]
fn two_never_get_the_same_last_place() {
    let narrow = RouterConfig {
        start_within: Millis::ZERO,
        ..config()
    };
    for round in 0..20 {
        let world = World::with(8, "time", &narrow, |new| new.spec.max_sequences = Some(1));
        let went = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (router, went) = (&world.router, &went);
                scope.spawn(move || {
                    for turn in 0..8 {
                        let ask = question(&format!("{thread}/{turn}"), thread * 100 + turn, 5);
                        if let Verdict::Go(_) = router.ask(Time::from_millis(1.0), ask) {
                            went.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        assert_eq!(went.into_inner(), 8, "round {round}");
        assert_eq!(world.router.waiting(), 24);
        for rank in world.router.state(world.now).ranks {
            assert_eq!(rank.load.requests(), 1);
        }
    }
}
