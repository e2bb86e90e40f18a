//! A member restarted on bad hardware: with the interposed library between it and its kernel.

use std::time::Duration;

use super::sight;
use crate::Failure;
use crate::driver::interpose::{Control, Knob};
use crate::ground::{Change, Ground};

/// It may be longer, on a busy machine; the grip is there all the same.
const SERVES_WITHIN: Duration = Duration::from_secs(15);

/// One life of one member, and the controls of its hardware.
#[derive(Debug)]
pub struct Grip {
    /// Whose.
    pub member: usize,
    /// What can be turned.
    pub control: Control,
}

impl Grip {
    /// Kills a member and starts it on hardware with these faults from the start; waits until it
    /// serves.
    pub async fn take(
        ground: &mut dyn Ground,
        member: usize,
        faults: &[(Knob, i64)],
    ) -> Result<Self, Failure> {
        let data_dir = ground.data_dir(member).ok_or_else(|| {
            Failure::harness(format!("the data of {} cannot be reached from here", ground.name(member)))
        })?;
        let control = Control::new(&data_dir)?;
        for (knob, value) in faults {
            control.set(*knob, *value)?;
        }
        ground.kill(member).await?;
        ground.start(member, Change { env: control.env(), ..Change::default() }).await?;
        sight::comes_back(ground, member, SERVES_WITHIN).await?;
        let grip = Self { member, control };
        if grip.control.pid()? == 0 {
            return Err(Failure::harness(format!(
                "{} has not loaded the interposed library: is it linked to the C library of this machine?",
                ground.name(member)
            )));
        }
        Ok(grip)
    }

    /// Whether the member still lives the life that was taken.
    pub fn holds(&self, ground: &dyn Ground) -> Result<bool, Failure> {
        let pid = self.control.pid()?;
        Ok(ground.usage(self.member).is_some_and(|usage| usage.pid == pid))
    }
}
