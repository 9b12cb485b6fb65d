//! SIGKILL at every named point of a run without state, and at random moments.

use super::{Draw, Scenario, Store, number};
use lobster_tests::on_shared;
use std::{os::unix::process::ExitStatusExt, time::Duration};

/// Kills at a point five times, each time after one pass more and in a database of its own, and checks after each.
fn killed_at(store: Store, point: &str) {
    let mut scenario = Scenario::new(store);
    let passes = number("LOBSTER_PASSES", 5);
    for pass in 1..=passes {
        // P0 and the like are passed once in a process.
        let pass = if point == "P0" { 1 } else { pass };
        scenario.die_at(point, pass);
        scenario.beyond(&format!("{point}:{pass}"), Scenario::finish);
        scenario = Scenario { kills: scenario.kills, ..Scenario::new(store) };
    }
    assert_eq!(scenario.kills, passes);
}

macro_rules! points {
    ($($name:ident: $point:literal,)*) => {
        on_shared! {$(
            fn $name(store) {
                killed_at(store, $point);
            }
        )*}
    };
}

points! {
    killed_before_the_first_claim: "P0",
    killed_with_a_claim_sent: "P1",
    killed_with_a_claim_acknowledged: "P2",
    killed_with_a_recording_read: "P3",
    killed_in_a_step_body: "P7",
    killed_with_a_flush_sent: "P10",
    killed_with_a_flush_acknowledged: "P11",
    killed_with_an_intent_sent: "P12",
    killed_with_an_intent_acknowledged_and_no_call_begun: "P13",
    killed_with_a_call_applied_and_no_answer_here: "P14",
    killed_with_an_answer_here: "P15",
    killed_with_a_result_sent: "P16",
    killed_with_a_result_acknowledged: "P17",
    killed_between_steps: "P19",
    killed_with_a_finish_sent: "P20",
    killed_with_a_finish_acknowledged: "P21",
    killed_with_a_release_sent: "P22",
    killed_with_a_release_acknowledged: "P23",
    killed_with_a_submit_sent: "submit sent",
}

on_shared! {
    fn two_hundred_kills_at_random_moments(store) {
        killed_at_random(store, number("LOBSTER_KILLS", 200));
    }
}

fn killed_at_random(store: Store, so_often: u32) {
    let mut draw = Draw::new();
    let mut kills = 0;
    while kills < so_often {
        let scenario = Scenario::new(store);
        // Fewer than set a run aside: killed this fast, several processes in a row may record nothing new of it.
        for time in 0..4 {
            let killed = |scenario: &Scenario| {
                let mut worker = scenario.worker(None);
                let heard = scenario.world.events().len();
                scenario.world.wait_for(heard + 1 + draw.below(12) as usize, Duration::from_millis(300));
                worker.kill().unwrap();
                kills += u32::from(worker.wait().unwrap().signal() == Some(9));
            };
            scenario.beyond(&format!("kill {time}"), killed);
        }
        scenario.beyond("the last kill", Scenario::finish);
    }
}
