//! Whether the bucket can be used: a flag from the periodic HeadBucket. While it is down, every LFS call answers 503.
//!
//! Each shard looks for itself: shards share nothing, and one HeadBucket per interval and shard costs less than a
//! way to hand the flag over. Only the first shard creates the bucket.

use std::time::Duration;

use crate::config::S3Timeouts;
use crate::context::Context;
use crate::operation::Outcome;
use crate::s3::{Refusal, Request, Response};
use crate::timers::Timer;

use super::Decision;
use super::purpose::Purpose;
use super::s3_call;

/// A bucket that was away is looked at more often.
const INTERVAL_WHILE_DOWN: Duration = Duration::from_secs(5);

/// What the last HeadBucket said.
pub(crate) struct S3Health {
    healthy: bool,
    /// The first look has not ended, and the bucket is to be created if it is not there.
    ensure: bool,
    interval: Duration,
    timeouts: S3Timeouts,
}

impl S3Health {
    /// Healthy until the first look says otherwise.
    pub(crate) fn new(interval: Duration, timeouts: S3Timeouts) -> Self {
        Self { healthy: true, ensure: false, interval, timeouts }
    }

    /// Whether LFS calls are served.
    pub(crate) fn is_healthy(&self) -> bool {
        self.healthy
    }

    /// The first look. Other shards than the first wait one interval, so that the bucket may be created meanwhile.
    pub(crate) fn start(&mut self, ctx: &mut Context<'_>, ensure_bucket: bool, out: &mut Vec<Decision>) {
        if ctx.config.first_shard {
            self.ensure = ensure_bucket;
            self.look(out);
        } else {
            ctx.timers.set(Timer::S3Health, ctx.now.monotonic + self.interval);
        }
    }

    /// The time for the next look has come.
    pub(crate) fn on_timer(&self, out: &mut Vec<Decision>) {
        self.look(out);
    }

    /// A HeadBucket has ended.
    pub(crate) fn on_looked(
        &mut self,
        ctx: &mut Context<'_>,
        outcome: Outcome<Response, Refusal>,
        out: &mut Vec<Decision>,
    ) {
        let failure = match outcome {
            Outcome::Applied(_) => None,
            Outcome::NotApplied(refusal) => Some(format!("{refusal:?}")),
            Outcome::Unknown(reason) => Some(reason),
        };
        if let (Some(reason), true) = (&failure, std::mem::take(&mut self.ensure)) {
            tracing::info!(reason, "the bucket is not there: creating it");
            let request = Request::CreateBucket;
            self.order(Purpose::EnsureBucket, request, out);
            return;
        }
        match (self.healthy, &failure) {
            (true, Some(reason)) => tracing::warn!(reason, "S3 is not usable: LFS calls answer 503"),
            (false, None) => tracing::info!("S3 is usable again"),
            (true, None) | (false, Some(_)) => {}
        }
        self.healthy = failure.is_none();
        let wait = if self.healthy { self.interval } else { self.interval.min(INTERVAL_WHILE_DOWN) };
        ctx.timers.set(Timer::S3Health, ctx.now.monotonic + wait);
    }

    /// The CreateBucket at start has ended. Whatever became of it, the next look tells whether the bucket can be used.
    pub(crate) fn on_ensured(&self, outcome: &Outcome<Response, Refusal>, out: &mut Vec<Decision>) {
        match outcome {
            Outcome::Applied(_) => tracing::info!("the bucket was created, or is there already"),
            Outcome::NotApplied(refusal) => tracing::error!(?refusal, "the bucket could not be created"),
            Outcome::Unknown(reason) => tracing::error!(reason, "the bucket may not have been created"),
        }
        self.look(out);
    }

    fn look(&self, out: &mut Vec<Decision>) {
        self.order(Purpose::Health, Request::HeadBucket, out);
    }

    fn order(&self, purpose: Purpose, request: Request, out: &mut Vec<Decision>) {
        out.push(Decision::S3 { purpose, deadline: s3_call::deadline(&self.timeouts, &request), request });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::context::Ids;
    use crate::random::Random;
    use crate::time::{Monotonic, Now};
    use crate::timers::Timers;

    fn verbs(out: &mut Vec<Decision>) -> Vec<&'static str> {
        out.drain(..)
            .map(|decision| {
                let Decision::S3 { request, .. } = decision else { panic!("not for S3: {decision:?}") };
                if request == Request::HeadBucket { "head" } else { "create" }
            })
            .collect()
    }

    #[test]
    fn ensured_once_then_watched() {
        let (config, mut timers, mut random, mut ids) =
            (Config::default(), Timers::default(), Random::new([0; 32]), Ids::default());
        let now = Now { monotonic: Monotonic::ZERO, unix_ms: 0 };
        let mut ctx = Context { now, config: &config, timers: &mut timers, random: &mut random, ids: &mut ids };
        let mut out = Vec::new();
        let missing = || Outcome::NotApplied(Refusal::NoSuchBucket);
        let mut health = S3Health::new(Duration::from_secs(30), S3Timeouts::default());
        health.start(&mut ctx, true, &mut out);
        assert_eq!(verbs(&mut out), ["head"]);
        health.on_looked(&mut ctx, missing(), &mut out);
        assert_eq!(verbs(&mut out), ["create"]);
        assert!(health.is_healthy(), "not judged before the bucket had its chance");
        health.on_ensured(&Outcome::Applied(Response::Done), &mut out);
        assert_eq!(verbs(&mut out), ["head"]);
        health.on_looked(&mut ctx, missing(), &mut out);
        assert_eq!(verbs(&mut out), [""; 0], "created once only");
        assert!(!health.is_healthy());
        assert_eq!(ctx.timers.next().unwrap().at, Monotonic::from_millis(5_000));
        health.on_looked(&mut ctx, Outcome::Unknown("timeout".into()), &mut out);
        assert!(!health.is_healthy());
        health.on_looked(&mut ctx, Outcome::Applied(Response::Done), &mut out);
        assert!(health.is_healthy());
        assert_eq!(ctx.timers.next().unwrap().at, Monotonic::from_millis(30_000));
    }

    #[test]
    fn other_shards_look_later() {
        let config = Config { first_shard: false, ..Config::default() };
        let (mut timers, mut random, mut ids) = (Timers::default(), Random::new([0; 32]), Ids::default());
        let now = Now { monotonic: Monotonic::ZERO, unix_ms: 0 };
        let mut ctx = Context { now, config: &config, timers: &mut timers, random: &mut random, ids: &mut ids };
        let mut out = Vec::new();
        let mut health = S3Health::new(Duration::from_secs(30), S3Timeouts::default());
        health.start(&mut ctx, true, &mut out);
        assert!(out.is_empty() && health.is_healthy());
        assert!(ctx.timers.is_set(Timer::S3Health));
        health.on_timer(&mut out);
        assert_eq!(verbs(&mut out), ["head"]);
    }
}
