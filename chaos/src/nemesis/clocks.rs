//! Members whose clocks can be set, for the faults of clocks.

use super::grip::Grip;
use super::sight;
use crate::Failure;
use crate::driver::interpose::Knob;
use crate::ground::Ground;

/// Clocks taken, to be set right again.
#[derive(Debug, Default)]
pub struct Clocks {
    met: Vec<usize>,
    grips: Vec<Grip>,
}

impl Clocks {
    /// Takes the clocks of these members, one restart each, then sets each to its own.
    pub async fn set(
        &mut self,
        ground: &mut dyn Ground,
        knob: Knob,
        to: &[(usize, i64)],
    ) -> Result<(), Failure> {
        self.met = to.iter().map(|(member, _)| *member).collect();
        for member in &self.met {
            self.grips.push(Grip::take(ground, *member, &[]).await?);
        }
        for (grip, (_, value)) in self.grips.iter().zip(to) {
            grip.control.set(knob, *value)?;
        }
        Ok(())
    }

    /// Sets all right again.
    pub async fn heal(&mut self, ground: &mut dyn Ground) -> Result<(), Failure> {
        for grip in std::mem::take(&mut self.grips) {
            grip.control.release()?;
        }
        sight::start(ground, &std::mem::take(&mut self.met)).await
    }
}
