//! Cuts a failing scenario down: fewer actions, and the same failure.

use super::{Failure, Scenario, run};
use crate::world::choices::Choices;

/// Leaves out actions, in ever smaller pieces, as long as it still fails in the same way; gives what is left and how it fails.
pub fn shrink(seed: u64) -> Option<(Scenario, Failure)> {
    let mut choices = Choices::from_seed(seed);
    let mut scenario = Scenario::draw(&mut choices);
    let fails = |scenario: &Scenario| {
        let mut choices = Choices::from_seed(seed);
        // The world goes on with the choices that the drawing left.
        drop(Scenario::draw(&mut choices));
        run(scenario, choices, false).result.err()
    };
    let mut failure = fails(&scenario)?;
    let name = signature(&failure);
    let mut piece = scenario.actions.len().div_ceil(2);
    while piece > 0 {
        let mut from = 0;
        while from < scenario.actions.len() {
            let mut smaller = scenario.clone();
            smaller.actions.drain(from..(from + piece).min(scenario.actions.len()));
            match fails(&smaller).filter(|failure| signature(failure) == name) {
                Some(same) => (scenario, failure) = (smaller, same),
                None => from += piece,
            }
        }
        piece /= 2;
    }
    Some((scenario, failure))
}

/// What a failure is, without the numbers in it.
fn signature(failure: &Failure) -> (u8, String) {
    let words = failure.text.split(' ').take(3).filter(|word| !word.contains(|letter: char| letter.is_ascii_digit()));
    (failure.kind.exit_code(), words.collect::<Vec<_>>().join(" "))
}
