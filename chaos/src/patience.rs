//! Waiting for what has to come within a time, told apart by its end: what comes late is "too slow", which
//! is measured once more; what still has not come a minute later never comes, and breaks a promise.

use std::fmt::Display;
use std::time::Duration;

use tokio::time::Instant;

use crate::Failure;

/// For so long what is overdue is waited for. Only a run that has failed by then takes this time.
pub const LONGER: Duration = Duration::from_secs(60);

/// One wait, from when it was made.
#[derive(Debug)]
pub struct Patience {
    what: String,
    within: Duration,
    began: Instant,
}

impl Patience {
    /// `what` has to come within this time.
    pub fn of(what: impl Into<String>, within: Duration) -> Self {
        Self { what: what.into(), within, began: Instant::now() }
    }

    /// Until it is given up.
    pub fn left(&self) -> Duration {
        (self.within + LONGER).saturating_sub(self.began.elapsed())
    }

    /// It has come; how long that took.
    pub fn came(&self) -> Result<Duration, Failure> {
        let took = self.began.elapsed();
        match took.checked_sub(self.within) {
            None | Some(Duration::ZERO) => Ok(took),
            Some(late) => Err(Failure::slow(format!(
                "{}: {late:.1?} later than the {:?} allowed",
                self.what, self.within
            ))),
        }
    }

    /// It has not come yet: fails once it is given up, with what is there instead.
    pub fn lasts(&self, instead: impl Display) -> Result<(), Failure> {
        if self.left().is_zero() { Err(self.never(instead)) } else { Ok(()) }
    }

    /// It is given up.
    pub fn never(&self, instead: impl Display) -> Failure {
        let (what, within) = (&self.what, self.within);
        Failure::broken(format!("{what}: not within {within:?}, nor {LONGER:?} later: {instead}"))
    }

    /// The same, and then a pause.
    pub async fn pause(&self, length: Duration, instead: impl Display) -> Result<(), Failure> {
        self.lasts(instead)?;
        tokio::time::sleep(length).await;
        Ok(())
    }

    /// Looks again and again until it is there.
    pub async fn until(
        self,
        every: Duration,
        mut is_there: impl FnMut() -> Result<(), String>,
    ) -> Result<Duration, Failure> {
        while let Err(instead) = is_there() {
            self.pause(every, instead).await?;
        }
        self.came()
    }

    /// Waits for this.
    pub async fn wait<T>(self, coming: impl Future<Output = T>) -> Result<T, Failure> {
        match tokio::time::timeout(self.left(), coming).await {
            Ok(come) => self.came().map(|_| come),
            Err(_) => Err(self.never("nothing")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WITHIN: Duration = Duration::from_secs(5);

    async fn seen_after(seconds: u64) -> Result<Duration, Failure> {
        let began = Instant::now();
        let is_there = || {
            let is_there = Duration::from_secs(seconds) <= began.elapsed();
            if is_there { Ok(()) } else { Err(format!("at {:?}", began.elapsed())) }
        };
        Patience::of("a light", WITHIN).until(Duration::from_secs(1), is_there).await
    }

    #[tokio::test(start_paused = true)]
    async fn what_comes_in_time_passes_and_what_comes_late_is_slow() {
        assert_eq!(seen_after(5).await.expect("in time"), WITHIN);
        let late = seen_after(8).await.expect_err("it was late");
        assert_eq!(late.to_string(), "too slow: a light: 3.0s later than the 5s allowed");
    }

    #[tokio::test(start_paused = true)]
    async fn what_never_comes_is_a_broken_promise() {
        let never = seen_after(1_000).await.expect_err("it never came");
        assert_eq!(never.to_string(), "broken promise: a light: not within 5s, nor 60s later: at 65s");
    }

    #[tokio::test(start_paused = true)]
    async fn a_future_is_judged_by_the_same_rule() {
        let after = |seconds| {
            Patience::of("an answer", WITHIN).wait(tokio::time::sleep(Duration::from_secs(seconds)))
        };
        assert!(after(5).await.is_ok());
        assert!(matches!(after(64).await, Err(Failure::Slow(_))));
        assert!(matches!(after(66).await, Err(Failure::Broken(_))));
        let never = Patience::of("an answer", WITHIN).wait(std::future::pending::<()>()).await;
        assert!(matches!(never, Err(Failure::Broken(_))));
    }
}
