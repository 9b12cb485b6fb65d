//! When to kill: points on the progress of the job, not on the clock, so that every kill finds work in its hands.
//! One seed, one schedule.

/// One kill that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KillPoint {
    /// The kill is due when this many calls have been executed.
    pub after: u64,
    /// The outside world executes no call beyond this count before the kill has happened. It keeps the kills apart and
    /// leaves work for the next process.
    pub hold: u64,
    /// Which of several processes it is for: their number divides it, and the remainder says.
    pub draw: usize,
}

/// Spreads `kills` kills over a job that executes `calls` calls.
///
/// The calls but the last are cut into as many equal parts as there are kills, and one point is drawn in each. So the
/// points are distinct and ascending, and after each of them at least one call is still to do. A job of n calls has room
/// for n - 1 kills; a longer list is cut to that.
pub fn schedule(kills: u64, seed: u64, calls: u64) -> Vec<KillPoint> {
    let room = calls.saturating_sub(1);
    let kills = kills.min(room);
    let mut chance = fastrand::Rng::with_seed(seed);
    let edge = |part: u64| u64::try_from(u128::from(room) * u128::from(part) / u128::from(kills)).unwrap_or(room);
    (0..kills)
        .map(|part| {
            let (first, last) = (edge(part) + 1, edge(part + 1));
            KillPoint { after: chance.u64(first..=last), hold: last, draw: chance.usize(..) }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_of_kills_gives_as_many_distinct_points_with_work_left() {
        for calls in [201, 830, 3 * 830] {
            for kills in 0..=200 {
                let points = schedule(kills, kills * 7 + calls, calls);
                assert_eq!(points.len() as u64, kills);
                assert!(points.iter().all(|point| 1 <= point.after && point.after <= point.hold && point.hold < calls));
                assert!(points.windows(2).all(|pair| pair[0].hold < pair[1].after), "{kills} kills of {calls}");
            }
        }
    }

    #[test]
    fn the_points_reach_over_the_whole_job() {
        let points = schedule(20, 1, 2_490);
        assert!(points[0].after <= 2_490 / 20 && points[19].after > 2_490 * 18 / 20, "{points:?}");
    }

    #[test]
    fn a_seed_gives_the_same_points_again_and_another_seed_other_ones() {
        assert_eq!(schedule(20, 7, 2_490), schedule(20, 7, 2_490));
        assert_ne!(schedule(20, 7, 2_490), schedule(20, 8, 2_490));
    }

    #[test]
    fn a_small_job_gets_as_many_kills_as_it_has_room_for() {
        assert_eq!(schedule(5, 1, 0), []);
        assert_eq!(schedule(5, 1, 1), []);
        assert_eq!(schedule(5, 1, 3).iter().map(|point| point.after).collect::<Vec<_>>(), [1, 2]);
    }
}
